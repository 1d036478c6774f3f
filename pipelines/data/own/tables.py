"""Tables of images: columns of paths or encoded images, of labels, and optionally of splits."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.core.errors import UserError
from pipelines.core.url import is_url
from pipelines.data.own import class_labels, label_sets, table_files
from pipelines.data.own.columns import is_text
from pipelines.data.own.item import Item, is_hidden, name_of, split_in, split_of
from pipelines.data.own.table_files import reading
from serving.errors import ImageError

# Names of columns, in order of preference and in any case.
IMAGE = ("image", "path", "file", "file_name", "filename", "image_path", "filepath", "img")
LABEL = ("label", "class", "class_name", "target", "category", "labels", "classes", "tags")
SPLIT = ("split", "set", "subset", "fold")
# Files of Hugging Face's `imagefolder`, next to the images.
METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")


def matches(path: Path) -> bool:
    """Returns whether the data are a table, or a folder with one in the form of Hugging Face's `imagefolder`.

    Raises:
        UserError: see `table_files.parts`.
    """
    return (path.is_dir() and _metadata(path) is not None) or bool(table_files.parts(path))


def has_images(table: Path) -> bool:
    """Returns whether a table has a column of images: their paths, or their content.

    Raises:
        UserError: the table cannot be read.
    """
    kinds = (field.type for field in table_files.schema(table) if field.name.lower() in IMAGE)
    return not all(pa.types.is_primitive(kind) or pa.types.is_decimal(kind) or pa.types.is_null(kind) for kind in kinds)


def paths(table: Path) -> set[str]:
    """Returns the paths in the column of images of a table; none if it holds their content or has no such column.

    Paths with backslashes are also returned with slashes; see `_found`.

    Raises:
        UserError: the table cannot be read.
    """
    is_parquet = table.suffix.lower() == ".parquet"
    with reading(table):
        found = pq.read_schema(table) if is_parquet else table_files.schema(table)
    by_name = {field.name.lower(): field for field in reversed(found)}
    field = next((by_name[name] for name in IMAGE if name in by_name), None)
    if field is None or not is_text(field.type):
        return set()
    with reading(table):
        if is_parquet:
            content = pq.read_table(table, columns=[field.name])
        else:
            content = table_files.class_names(table, found.names)
    written = {*content[field.name].to_pylist()} - {None}
    return written | {path.replace("\\", "/") for path in written}


def items(path: Path, group: str | None) -> Iterator[Item]:
    """Lists the images of a table. Paths in it are relative to the folder of the table.

    Args:
        path: the table, or the folder that it is in; or a folder of Parquet files, which belong to the splits that
            they are named after.
        group: column of groups; None for no groups.

    Raises:
        UserError: the table cannot be read, or lacks a column.
    """
    if path.is_dir() and _metadata(path) is None:
        for part in table_files.parts(path):
            split = split_in(part.relative_to(path))
            for item in items(part, group):
                yield replace(item, name=f"{split}: {item.name}", split=item.split or split) if split else item
        return
    table = (_metadata(path) or path) if path.is_dir() else path
    read = {".parquet": _parquet, ".jsonl": _json_lines}.get(table.suffix.lower(), _csv)
    with reading(table):
        yield from read(table, group)


def roles(names: Sequence[str], table: Path, group: str | None) -> dict[str, str]:
    """Finds the columns of a table.

    Args:
        names: its columns.
        table: its file, for messages.
        group: column of groups; None for no groups.

    Returns:
        The columns of "image", "label", and, if the table has them, "split" and "group".

    Raises:
        UserError: a column is missing, or there twice.
    """
    # Of names that differ only in case, the first counts.
    by_name = {name.lower(): name for name in reversed(names)}
    found = {}
    for role, candidates in (("image", IMAGE), ("label", LABEL), ("split", SPLIT)):
        name = next((by_name[one] for one in candidates if one in by_name), None)
        if name is not None:
            if names.count(name) > 1:
                raise UserError(f"{table} has more than one column named {name!r}. Rename them.")
            found[role] = name
        elif role != "split":
            raise UserError(
                f"{table} has no column for the {role}. Expected one named {', '.join(candidates)}. "
                f"It has: {', '.join(names)}."
            )
    if group is not None:
        if names.count(group) != 1:
            number = "more than one column" if group in names else "no column"
            raise UserError(f"{table} has {number} {group!r} of groups. It has: {', '.join(names)}.")
        found["group"] = group
    return found


def rows(
    batch: pa.RecordBatch | pa.Table,
    columns: Mapping[str, str],
    image: Callable[[int], Any],
    table: Path,
    first: int = 0,
) -> Iterator[Item]:
    """Lists the images of some rows; the label of a row without one is empty.

    Args:
        batch: the rows; it may lack the column of images.
        columns: the result of `roles`.
        image: reads the image of a row: a path, bytes, or Hugging Face's pair of both.
        table: the file, to which paths are relative.
        first: number of rows before these.

    Raises:
        UserError: a row has no image, an unknown split, or a number without a class.
    """
    values = {role: batch[name].to_pylist() for role, name in columns.items() if role != "image"}
    classes = class_labels.names_of_classes(batch.schema, columns["label"])
    has_paths = columns["image"] in batch.schema.names and is_text(batch.schema.field(columns["image"]).type)
    for number, label in enumerate(values["label"]):
        where = f"row {first + number + 1} of {table.name}"
        # For an image without a label, the message names the row, which the user can complete.
        name = image(number) if has_paths and label is not None else where
        if name is None:
            raise UserError(f"{where} has no image. Complete or remove it.")
        yield Item(
            name,
            label_sets.label_of(class_labels.class_name(label, classes, where) if classes else label, where),
            partial(_read, image, number, table.parent, where),
            split_of(values["split"][number], where, columns["split"]) if "split" in values else None,
            name_of(values["group"][number]) or None if "group" in values else None,
        )


def _metadata(folder: Path) -> Path | None:
    return next((file for name in METADATA if (file := folder / name).is_file() and not _has_captions(file)), None)


def _has_captions(metadata: Path) -> bool:
    """Returns whether a file of JSON lines has no labels, and folders next to it, which are the classes then."""
    if metadata.suffix != ".jsonl" or not any(
        one.is_dir() and not is_hidden(Path(one.name)) for one in metadata.parent.iterdir()
    ):
        return False
    with reading(metadata):
        return not any(name.lower() in LABEL for values in _objects(metadata) for name in values)


def _csv(table: Path, group: str | None) -> Iterator[Item]:
    names = table_files.schema(table).names
    # Labels such as 007 are names, not numbers.
    content = table_files.class_names(table, names)
    columns = roles(names, table, group)
    paths = content[columns["image"]].to_pylist()
    yield from rows(content, columns, paths.__getitem__, table)


def _json_lines(table: Path, group: str | None) -> Iterator[Item]:
    found = [*_objects(table)]
    columns = roles([*dict.fromkeys(name for values in found for name in values)], table, group)
    cells = {name: [values.get(name) for values in found] for name in {*columns.values()}}
    content = pa.table({name: _column(values, name, table) for name, values in cells.items()})
    yield from rows(content, columns, content[columns["image"]].to_pylist().__getitem__, table)


def _column(values: Sequence[Any], name: str, table: Path) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        given = [(row, value) for row, value in enumerate(values, 1) if value is not None]
        row, first = given[0]
        others = (f", and in row {one} {json.dumps(value)}" for one, value in given if type(value) is not type(first))
        other = next(others, "")
        why = f"in row {row}, {name} is {json.dumps(first)}{other}" if other else f"{name}: {error}"
        raise UserError(f"the table {table} cannot be read: {why}. Write values of one kind, such as texts.") from error


def _objects(table: Path) -> Iterator[dict[str, Any]]:
    lines = table.read_text("utf-8-sig").split("\n")
    return (_json_line(line, f"line {number} of {table}") for number, line in enumerate(lines, 1) if line.strip())


def _json_line(line: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise UserError(f"{where} cannot be read: {error}. Correct or remove it.") from error
    if not isinstance(values, dict):
        raise UserError(f'{where} is no object. Expected {{"file_name": "1.jpg", "label": "cat"}}: correct it.')
    return values


def _parquet(table: Path, group: str | None) -> Iterator[Item]:
    with pq.ParquetFile(table) as file:
        schema, groups = file.schema_arrow, file.num_row_groups
        columns = roles(schema.names, table, group)
        # Encoded images are read when they are needed, a row group at a time, so that not all of them are in memory.
        has_paths = is_text(schema.field(columns["image"]).type)
        wanted = [name for role, name in columns.items() if role != "image" or has_paths]
        # Part of the key of the cache: a file that is written again must not get the images of an earlier one.
        listing, first = object(), 0
        for number in range(groups):
            batch = file.read_row_group(number, wanted)
            yield from rows(batch, columns, partial(_cell, listing, table, number, columns["image"]), table, first)
            first += batch.num_rows


def _cell(listing: object, table: Path, group: int, column: str, row: int) -> Any:
    return _row_group(listing, table, group, column)[row].as_py()


# Images are read in order, by a few threads.
@lru_cache(maxsize=4)
def _row_group(_: object, table: Path, group: int, column: str) -> pa.ChunkedArray:
    with pq.ParquetFile(table) as file:
        return file.read_row_group(group, [column])[column]


def _read(image: Callable[[int], Any], row: int, folder: Path, where: str) -> bytes:
    value = image(row)
    if isinstance(value, Mapping):
        value = value.get("path") if value.get("bytes") is None else value["bytes"]
    if isinstance(value, str):
        if is_url(value):
            raise ImageError(f"{value} is a URL. Expected a path: download the image, and write its path there.")
        return _found(folder, value).read_bytes()
    if not isinstance(value, bytes):
        raise ImageError(f"{where} has neither the path nor the bytes of an image.")
    return value


def _found(folder: Path, name: str) -> Path:
    r"""Returns the path of an image of a table. Tables that were written on Windows have paths such as `cat\1.png`."""
    path = folder / name
    return path if path.exists() else folder / name.replace("\\", "/")
