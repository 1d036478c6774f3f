"""The columns of a table: their values, their use for prediction, and their conversion to numbers."""

import math
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.core.errors import UserError
from pipelines.core.run import TableColumn
from pipelines.data.own import column_notes
from pipelines.data.own.item import are_identifiers, in_order, name_of
from serving.rows import LARGEST

# Maximum number of categories of a column; the most frequent ones are kept.
CATEGORIES = 100
# Categories in a description.
SHOWN = 4
# The rest of a sentence about a column or a file.
NOT_UTF8 = "is not in UTF-8. Convert the file: iconv -f latin1 -t utf-8."
EMPTY = "is empty"
MICROSECONDS_PER_DAY = 86_400e6
# Whole numbers up to this one are exact in float64.
EXACT = 2**53


class SurveyedColumn(NamedTuple):
    """Description of the values of a column."""

    name: str
    kind: str
    missing: int
    """Rows without a value."""
    values: str
    """Range of the numbers, or the categories."""


def values(column: pa.ChunkedArray, name: str, path: Path) -> np.ndarray | str:
    """Returns the values of a column, or why they cannot be used.

    Args:
        column: the column.
        name: its name.
        path: the file, for messages.

    Returns:
        Numbers, float64 with NaN for missing ones; dates are days since 1970. Or texts, objects with None for missing
        ones. Or the rest of a sentence about the column.

    Raises:
        UserError: numbers are infinite, or texts are not in UTF-8.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if pa.types.is_binary(kind) and path.suffix.lower() in (".csv", ".tsv"):
        raise UserError(f"the column {name!r} of {path} {NOT_UTF8}")
    if why := _unusable(column, name):
        return why
    if pa.types.is_boolean(kind) or is_text(kind) or _are_names(column):
        return np.array([text or None for text in column.cast(pa.string()).to_pylist()], object)
    if date_of(kind):
        instants = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
        return instants.cast(pa.float64(), safe=False).to_numpy() / MICROSECONDS_PER_DAY
    numbers = column.cast(pa.float64(), safe=False).to_numpy()
    too_large = np.flatnonzero(np.abs(numbers) > LARGEST)
    if len(too_large):
        raise UserError(
            f"the column {name!r} of {path} has the number {numbers[too_large[0]]:g} in row {too_large[0] + 1}. "
            "Expected finite numbers: correct it, or leave the cell empty."
        )
    return numbers


def needed(column: pa.ChunkedArray, name: str, path: Path) -> np.ndarray:
    """Returns the values of a column that a model takes or predicts; all are missing if it is empty.

    Args:
        column: see `values`.
        name: see `values`.
        path: see `values`.

    Raises:
        UserError: see `values`, or the values are neither numbers, texts, truth values nor dates.
    """
    found = values(column, name, path)
    if not isinstance(found, str):
        return found
    if found == EMPTY:
        return np.full(len(column), None, object)
    raise UserError(
        f"the column {name!r} of {path} {found}. Expected numbers, texts, truth values or dates: convert the column."
    )


def is_text(kind: pa.DataType) -> bool:
    """Returns whether values are texts; pandas 3 and Polars write large ones, and other programs views."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def date_of(kind: pa.DataType) -> Literal["day", "time"] | None:
    """Returns the kind of dates of values; None for other values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return "day" if pa.types.is_date(kind) else "time" if pa.types.is_timestamp(kind) else None


def is_missing(found: np.ndarray) -> np.ndarray:
    """Returns which of the `values` are missing, bool [n]."""
    if found.dtype == object:
        return np.array([value is None for value in found], bool)
    return np.isnan(found)


def is_constant(found: np.ndarray) -> bool:
    """Returns whether all of the `values` are the same, or all are missing."""
    return bool(is_missing(found).all() or (found == found[0]).all())


def is_index(name: str, found: np.ndarray) -> bool:
    """Returns whether a column is an index without a name, by the name that pandas gives to it.

    Its name in a Parquet file is proof. In a CSV, pandas gives the name to any first column without one, which is an
    index if it has another whole number in each row; the rows may be shuffled, or selected from others.

    Args:
        name: its name.
        found: its values.
    """
    if re.fullmatch(r"Unnamed: 0(\.\d+)*", name):
        numbers = found.dtype != object and bool((found == np.floor(found)).all())
        return numbers and found.min() >= 0 and len(np.unique(found)) == len(found)
    return re.fullmatch(r"__index_level_\d+__", name) is not None


def useless(found: np.ndarray, known: np.ndarray) -> str:
    """Returns why a column does not help to predict anything, as the rest of a sentence; nothing if it may.

    Args:
        found: its values.
        known: rows with a target, bool [n].
    """
    if found.dtype != object and found[0] in (0, 1) and (np.diff(found) == 1).all():
        return "numbers the rows"
    found = found[known]
    missing = is_missing(found)
    different = len(set(found[~missing].tolist()))
    if missing.all():
        return "is empty where the target is known"
    if different == 1 and not missing.any():
        return "is the same in every row"
    if found.dtype == object and are_identifiers(different, (~missing).sum()):
        return f"is text with a different value in nearly every row ({different:,}), like an identifier"
    return ""


def described(name: str, found: np.ndarray, kind: pa.DataType) -> TableColumn:
    """Describes a column by its values in the training rows.

    Args:
        name: its name.
        found: these values.
        kind: their type in the file.
    """
    if found.dtype != object:
        return TableColumn(name=name, missing=bool(np.isnan(found).any()), date=date_of(kind))
    counts = Counter(value for value in found.tolist() if value is not None)
    frequent = sorted(counts, key=lambda value: (-counts[value], value))[:CATEGORIES]
    return TableColumn(name=name, categories=in_order(frequent))


def numbered(found: np.ndarray, column: TableColumn) -> np.ndarray:
    """Replaces categories by their index, -1 for missing and unknown ones; numbers stay as they are.

    Args:
        found: values of the column.
        column: its description.

    Returns:
        float64 [n].
    """
    if column.categories is None:
        return found
    index = {category: number for number, category in enumerate(column.categories)}
    return np.array([index.get(value, -1) for value in found.tolist()], float)


def as_names(found: np.ndarray) -> np.ndarray:
    """Returns the values of a target with texts as names of classes; numbers stay as they are."""
    return found if found.dtype != object else np.array([name_of(value) or None for value in found], object)


def as_texts(found: np.ndarray) -> list[str | None]:
    """Returns values as names of categories or classes, None for missing ones; whole numbers have no decimal point."""
    if found.dtype == object:
        return found.tolist()
    return [None if np.isnan(one) else _plain(one) for one in found.tolist()]


def by_class(names: Sequence[str]) -> tuple[tuple[str, ...], np.ndarray]:
    """Returns the different names in order, and the index of each name among them, int64 [n]."""
    labels = in_order({*names})
    index = {label: number for number, label in enumerate(labels)}
    return labels, np.array([index[name] for name in names], np.int64)


def is_number(name: str) -> bool:
    """Returns whether a name is one that `as_texts` gives to a number: 7, but not 007."""
    try:
        number = float(name)
    except ValueError:
        return False
    return math.isfinite(number) and _plain(number) == name


def surveyed(name: str, found: np.ndarray, kind: pa.DataType) -> SurveyedColumn:
    """Describes all values of a column.

    Args:
        name: its name.
        found: the values.
        kind: their type in the file.
    """
    missing = is_missing(found)
    known = found[~missing].tolist()
    if found.dtype != object:
        span = f"{_short(min(known))} to {_short(max(known))}"
        return SurveyedColumn(name, "days since 1970" if date_of(kind) else "number", int(missing.sum()), span)
    common = [value for value, _ in Counter(known).most_common()]
    more = ", ..." if len(common) > SHOWN else ""
    return SurveyedColumn(name, "category", int(missing.sum()), f"{len(common)}: {', '.join(common[:SHOWN])}{more}")


def _are_names(column: pa.ChunkedArray) -> bool:
    """Returns whether whole numbers are names, such as ids and hashes, because float64, which rounds them, loses them.

    Few numbers would get other names; and of others, some become equal. The digits of large quantities do not matter.
    """
    if not (pa.types.is_integer(column.type) or (pa.types.is_decimal(column.type) and column.type.scale == 0)):
        return False
    limits = pc.min_max(column).as_py()
    if max(abs(limit) for limit in limits.values()) <= EXACT:
        return False
    numbers = [int(number) for number in column.drop_null().unique().to_pylist()]
    rounded = [float(number) for number in numbers]
    error = max(abs(number - int(one)) for number, one in zip(numbers, rounded, strict=True))
    loses = len({*rounded}) < len(numbers) and error > column_notes.LOST * float(np.std(rounded))
    return error > 0 and (len(numbers) <= column_notes.FEW or loses)


def _unusable(column: pa.ChunkedArray, name: str) -> str:
    """Returns why a column has neither numbers nor categories, as the rest of a sentence."""
    kind = column.type
    if not name.strip():
        # Programs write the numbers of rows into a column without a name.
        return "has no name"
    if len(column) == column.null_count:
        return EMPTY
    numbers = pa.types.is_primitive(kind) and not (pa.types.is_time(kind) or pa.types.is_duration(kind))
    return "" if is_text(kind) or numbers or pa.types.is_decimal(kind) else f"holds values of the type {kind}"


def _plain(number: float) -> str:
    return str(int(number)) if number == math.floor(number) else repr(number)


def _short(number: float) -> str:
    return f"{number:,.0f}" if number == math.floor(number) and abs(number) < 1e9 else f"{number:.4g}"
