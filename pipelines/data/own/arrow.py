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


def matches(path: Path) -> bool:
    """Returns whether the data are a folder that `save_to_disk` has written."""
    return (path / STATE).is_file() or (path / SPLITS_FILE).is_file()


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of a saved data set, or of each of its splits.

    Args:
        path: the folder.
        group: column of groups; None for no groups.

    Raises:
        UserError: a file is missing or damaged, or lacks a column.
    """
    if (path / SPLITS_FILE).is_file():
        for name in _json(path / SPLITS_FILE)["splits"]:
            split = split_of(name, str(path / SPLITS_FILE))
            for item in _part(path / name, group):
                yield Item(f"{name}: {item.name}", item.label, item.read, split, item.group)
    else:
        yield from _part(path, group)


def _part(folder: Path, group: str | None) -> Iterator[Item]:
    for entry in _json(folder / STATE)["_data_files"]:
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


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}. Save the data set again with save_to_disk.") from error
