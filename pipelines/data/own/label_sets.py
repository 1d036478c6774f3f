"""Examples with any number of classes: named in a cell, in a list, or by a column of 0 and 1 for each class."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipelines.core.errors import UserError
from pipelines.data.own import columns
from pipelines.data.own.item import name_of, one_line

# Texts in one of several target columns.
FLAGS = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, None: np.nan}


def split(cell: str, separator: str) -> tuple[str, ...]:
    """Returns the classes that a cell names, each once; none for an empty one.

    Args:
        cell: the names.
        separator: the text between them.

    Example:
        split("cat| dog|cat", "|")  # ("cat", "dog")
    """
    return distinct(cell.split(separator))


def distinct(values: Iterable[object]) -> tuple[str, ...]:
    """Returns the name that each value stands for, once; none for missing and empty ones."""
    return tuple(dict.fromkeys(filter(None, map(name_of, values))))


def label_of(value: object, where: str) -> str | tuple[str, ...]:
    """Returns the name of a class; or several, given a list of values.

    Args:
        value: text, a number, None if it is missing, or a list of them.
        where: used in messages.

    Raises:
        UserError: the value, or one in the list, is an object or a list.
    """
    if any(isinstance(one, dict | list) for one in (value if isinstance(value, list) else (value,))):
        raise UserError(
            f"{where} has the label {json.dumps(value, default=str)}. Expected a text, a number, or a list of them."
        )
    return distinct(value) if isinstance(value, list) else name_of(value)


def is_list(kind: pa.DataType) -> bool:
    """Returns whether cells are lists of names or numbers of classes."""
    if not (pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)):
        return False
    one = kind.value_type.value_type if pa.types.is_dictionary(kind.value_type) else kind.value_type
    return bool(columns.is_text(one) or pa.types.is_integer(one))


def target_columns(target: str, names: Sequence[str]) -> list[str]:
    """Returns the columns that a target stands for: one, or several with a comma between them.

    Args:
        target: the target.
        names: columns of the table; one of them may have a comma in its name.
    """
    return [target] if target in names else list(dict.fromkeys(filter(None, map(one_line, target.split(",")))))


def of_rows(content: pa.Table, target: str, separator: str | None, path: Path) -> np.ndarray | None:
    """Returns the classes of each row of a table.

    Args:
        content: the table.
        target: its target, whose columns are there.
        separator: text between the names in a cell; None if it names one class.
        path: the file, for messages.

    Returns:
        Tuples of names, objects [n], None for a row without a target; or None if rows have one class, or a number.

    Raises:
        UserError: one of several target columns has other values than 0 and 1, or cannot be read.
    """
    first, *others = target_columns(target, content.column_names)
    found: list[tuple[str, ...] | None]
    if others:
        chosen = np.column_stack([_flags(content, name, path) for name in (first, *others)])
        names = np.array([name_of(name) for name in (first, *others)], object)
        found = [None if np.isnan(row).any() else tuple(names[row == 1]) for row in chosen]
    elif is_list(content.schema.field(first).type):
        cells = content[first].to_pylist()
        found = [None if cell is None else distinct(cell) for cell in cells]
    else:
        values = columns.values(content[first], first, path)
        if separator is None or isinstance(values, str):
            return None
        found = [split(text or "", separator) for text in columns.as_texts(values)]
    return np.fromiter(found, object, len(found))


def hot(sets: Sequence[tuple[str, ...]] | np.ndarray, labels: Sequence[str]) -> np.ndarray:
    """Returns 1 for each class of an example and 0 for the others, uint8 [n, classes].

    Args:
        sets: names of the classes of each example.
        labels: names of all classes.
    """
    index = {label: number for number, label in enumerate(labels)}
    found = np.zeros((len(sets), len(labels)), np.uint8)
    for row, names in zip(found, sets, strict=True):
        row[[index[name] for name in names]] = 1
    return found


def _flags(content: pa.Table, name: str, path: Path) -> np.ndarray:
    texts = columns.as_texts(columns.needed(content[name], name, path))
    if wrong := next((text for text in texts if text not in FLAGS), None):
        raise UserError(f"the target {name} of {path} must hold 0 or 1, as one of several targets. Received: {wrong}.")
    return np.array([FLAGS[text] for text in texts])
