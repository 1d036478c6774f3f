"""Folders that Hugging Face's `datasets` has saved (`save_to_disk`): Arrow files with an image and a label."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipelines.core.errors import UserError
from pipelines.data.own import tables
from pipelines.data.own.item import Item, split_of

STATE, SPLITS_FILE = "state.json", "dataset_dict.json"
# The field of each of these files that is needed.
KEYS = {STATE: "_data_files", SPLITS_FILE: "splits"}


def matches(path: Path) -> bool:
    """Returns whether the data are a folder that `save_to_disk` has written."""
    return any(_is_saved(path / name, key) for name, key in KEYS.items())


def _is_saved(file: Path, key: str) -> bool:
    """Returns whether a file is Hugging Face's and no other of this name; a damaged one counts as Hugging Face's."""
    if not file.is_file():
        return False
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return True
    return isinstance(found, dict) and key in found


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of a saved data set, or of each of its splits.

    Args:
        path: the folder.
        group: column of groups; None for no groups.

    Raises:
        UserError: a file is missing or damaged, or lacks a column.
    """
    if _is_saved(path / SPLITS_FILE, KEYS[SPLITS_FILE]):
        for name in _field(path / SPLITS_FILE):
            split = split_of(name, str(path / SPLITS_FILE))
            for item in _part(path / name, group):
                yield Item(f"{name}: {item.name}", item.label, item.read, split, item.group)
    else:
        yield from _part(path, group)


def _part(folder: Path, group: str | None) -> Iterator[Item]:
    for entry in _field(folder / STATE):
        file = folder / entry["filename"]
        try:
            # The file is mapped, so that images are read when they are needed.
            with pa.memory_map(str(file)) as source, pa.ipc.open_stream(source) as reader:
                content = reader.read_all()
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{file} cannot be read: {str(error).splitlines()[0][:200]}. Save the data set again with save_to_disk."
            ) from error
        columns = tables.roles(content.schema.names, file, group)
        image = partial(_cell, content[columns["image"]])
        yield from tables.rows(content, columns, image, file)


def _cell(column: pa.ChunkedArray, row: int) -> Any:
    return column[row].as_py()


def _field(path: Path) -> Any:
    try:
        return json.loads(path.read_text())[KEYS[path.name]]
    except (OSError, ValueError, LookupError, TypeError) as error:
        why = f"{KEYS[path.name]} is missing" if isinstance(error, LookupError | TypeError) else error
        raise UserError(f"{path} cannot be read: {why}. Save the data set again with save_to_disk.") from error
