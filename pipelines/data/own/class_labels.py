"""Class labels of Hugging Face: columns of numbers, whose names are in the schema of the file."""

import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.core.errors import UserError
from pipelines.data.own import label_sets
from pipelines.data.own.columns import is_number


def names_of_classes(schema: pa.Schema, column: str) -> Sequence[str]:
    """Returns the names of the classes whose numbers a column holds, as Hugging Face writes them into the schema.

    Args:
        schema: schema of a Parquet or Arrow file.
        column: the column; its cells may be lists.

    Returns:
        The names; none if the column is no class label.
    """
    kind = schema.field(column).type
    if not pa.types.is_integer(kind.value_type if label_sets.is_list(kind) else kind):
        return ()
    info = json.loads((schema.metadata or {}).get(b"huggingface", "{}")).get("info") or {}
    found = (info.get("features") or {}).get(column) or {}
    # A list of class labels has them in a field, or in earlier versions in a list.
    found = found[0] if isinstance(found, list) else found.get("feature", found)
    return found.get("names") or ()


def class_name(value: Any, classes: Sequence[str], where: str) -> Any:
    """Returns the name of a class, given its number; None if it is missing; or a list of them, given a list.

    Args:
        value: the number, a list of numbers, or None.
        classes: names of the classes.
        where: used in messages.

    Raises:
        UserError: the number stands for no class.
    """
    if isinstance(value, list):
        return [class_name(one, classes, where) for one in value]
    # In Hugging Face's data sets, -1 stands for a missing label.
    if value is None or value == -1:
        return None
    if not 0 <= value < len(classes):
        raise UserError(
            f"{where} has the label {value}. Expected the number of one of {len(classes)} classes, from 0: the class "
            "labels in its Hugging Face metadata. Correct the label, or write the file without these metadata."
        )
    return classes[value]


def knows_numbers(labels: Collection[str], names: Collection[str]) -> bool:
    """Returns whether a net was trained on the numbers of class labels, as before their names were read.

    Args:
        labels: classes of the net.
        names: names of the class labels.
    """
    return bool(labels) and all(map(is_number, labels)) and not {*labels} & {*names}


def with_class_names(content: pa.Table, column: str, labels: Collection[str], path: Path) -> pa.Table:
    """Replaces the numbers of class labels in a column of a table by their names.

    Args:
        content: the table.
        column: the column, which may hold anything, or be missing; then nothing changes.
        labels: classes of a net that is to read the rows; see `knows_numbers`.
        path: the file, for messages.

    Raises:
        UserError: a number stands for no class.
    """
    classes = names_of_classes(content.schema, column) if column in content.column_names else ()
    if not classes or knows_numbers(labels, classes):
        return content
    cells = content[column]
    if label_sets.is_list(cells.type):
        lists = enumerate(cells.to_pylist(), 1)
        found = [class_name(cell, classes, f"row {number} of {path}") for number, cell in lists]
        names = pa.array(found, pa.list_(pa.string()))
    else:
        numbers = cells.cast(pa.int64(), safe=False)
        wrong = pc.or_(pc.less(numbers, -1), pc.greater_equal(numbers, len(classes)))
        if (row := pc.index(wrong, True).as_py()) >= 0:
            class_name(cells[row].as_py(), classes, f"row {row + 1} of {path}")
        names = pc.take(pa.array(classes, pa.string()), pc.if_else(pc.equal(numbers, -1), None, numbers))
    return content.set_column(content.column_names.index(column), column, names)
