"""Rows of a table: the values that users give, and the numbers that a net takes.

A category is its index, -1 if it is missing or unknown; a missing number is NaN; a date is days since 1970.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import numpy as np

from serving.errors import RequestError
from serving.inputs import Column
from serving.manifest import Manifest

MISSING = -1.0
# The shortest decimal number of the largest float32, a little above it.
LARGEST = float(str(np.finfo(np.float32).max))
_START, _DAY = datetime(1970, 1, 1, tzinfo=UTC), timedelta(days=1)
TRUTH_VALUES = {"true", "false"}
# A date in messages.
DATE = "2026-11-26"
# Warnings of a request, and names and characters of a value in a message.
WARNINGS, NAMES, QUOTED = 20, 30, 60

Value = float | str | None
"""A number, a category or a date as text, or a missing value."""


class EncodedRows(NamedTuple):
    """Rows as a net takes them."""

    values: np.ndarray
    """float32 `[n, columns]`."""
    warnings: tuple[str, ...]
    """A sentence for each unknown category, which counts as missing."""


def encode(rows: Sequence[Any], content: Manifest) -> EncodedRows:
    """Converts rows to numbers.

    Args:
        rows: each an object with values by column, or a list of values in the order of the columns. A missing value is
            null; an object may leave it out. A category is its name; a date is ISO 8601, or days since 1970.
        content: the manifest of a version for tables.

    Returns:
        The numbers, and the categories that the version does not know.

    Raises:
        RequestError: a row has another form, a column that the version does not take, or a text in place of a number.

    Example:
        encode([{"rooms": 4, "city": "Rome"}, [2, None, "Oslo"]], content).values
    """
    columns, unknown = content.columns, _UnknownCategories()
    found: list[float] = []
    places = {column.name: place for place, column in enumerate(columns)}
    known = [{name: index for index, name in enumerate(column.categories or ())} for column in columns]
    for number, row in enumerate(rows, 1):
        for place, value in enumerate(_in_order(row, number, places, content)):
            column = columns[place]
            if column.categories is None:
                found.append(_number(value, column, number))
            else:
                found.append(_index(value, column, known[place], number, unknown))
    return EncodedRows(np.array(found, np.float32).reshape(len(rows), len(columns)), unknown.sentences())


def check(values: np.ndarray, content: Manifest) -> np.ndarray:
    """Checks rows that are sent as numbers.

    Args:
        values: any numbers, `[n, columns]`; NaN is missing in a column of categories too.
        content: the manifest of a version for tables.

    Returns:
        The same as float32.

    Raises:
        RequestError: a number is infinite or too large, or an index has no category.
    """
    with np.errstate(over="ignore"):
        rows = np.array(values, np.float32)
    if (infinite := np.argwhere(np.isinf(rows))).size:
        row, place = infinite[0]
        raise RequestError(f"row {row + 1}: {content.columns[place].name} is infinite, or too large for float32.")
    for place, column in enumerate(content.columns):
        if column.categories is None:
            continue
        found = rows[:, place]
        found[np.isnan(found)] = MISSING
        if (wrong := np.flatnonzero((found < MISSING) | (found >= len(column.categories)) | (found % 1 != 0))).size:
            raise RequestError(
                f"row {wrong[0] + 1}: {column.name} must be the index of one of {len(column.categories)} categories, "
                f"or {MISSING:g} if it is missing. Received: {found[wrong[0]]:g}."
            )
    return rows


def decode(row: np.ndarray, columns: Sequence[Column]) -> dict[str, Value]:
    """Returns the values of a row by column, as `encode` takes them.

    Args:
        row: float32 `[columns]`.
        columns: its columns.
    """

    def value(number: np.float32, column: Column) -> Value:
        if column.categories is not None:
            return column.categories[int(number)] if number >= 0 else None
        if np.isnan(number):
            return None
        text = _date(number, column) if column.date else None
        # The shortest decimal number of the same float32.
        return float(str(number)) if text is None else text

    return {column.name: value(number, column) for number, column in zip(row, columns, strict=True)}


def days(text: str) -> float | None:
    """Returns the days since 1970 of a date, with a fraction for its time of day; None for another text.

    Args:
        text: ISO 8601; in UTC unless it names another offset.

    Example:
        days("1970-01-02T12:00")  # 1.5
    """
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return ((found if found.tzinfo else found.replace(tzinfo=UTC)) - _START) / _DAY


def expected(content: Manifest) -> str:
    """Returns a sentence about the rows that a version takes."""
    return f"Model {content.name!r} takes rows of {len(content.columns)} columns: {_listed(content)}."


class _UnknownCategories:
    """Categories that a version does not know, with the rows that have them."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], list[int]] = {}

    def add(self, column: str, value: Any, row: int) -> None:
        self._rows.setdefault((column, _quoted(value)), []).append(row)

    def sentences(self) -> tuple[str, ...]:
        found = []
        for (column, value), rows in self._rows.items():
            more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
            found.append(f"{column} has no category {value}, so it counts as missing (row {rows[0]}{more}).")
        if len(found) > WARNINGS:
            found[WARNINGS:] = [f"There are {len(found) - WARNINGS} more unknown categories."]
        return tuple(found)


def _in_order(row: Any, number: int, places: Mapping[str, int], content: Manifest) -> Sequence[Any]:
    if isinstance(row, Mapping):
        if others := row.keys() - places.keys():
            raise RequestError(f"row {number} has the column {_quoted(min(others))}. {expected(content)}")
        return [row.get(name) for name in places]
    if not isinstance(row, list | tuple):
        raise RequestError(
            f"row {number} must be an object with values by column, or a list of {len(places)} values. "
            f"Received: {_quoted(row)}."
        )
    if len(row) != len(places):
        raise RequestError(f"row {number} has {len(row)} values. {expected(content)}")
    return row


def _number(value: Any, column: Column, row: int) -> float:
    if value is None:
        return np.nan
    if column.date and isinstance(value, str) and (found := days(value)) is not None:
        return found
    if not isinstance(value, int | float):
        wanted = f"a date such as {DATE}" if column.date else "a number"
        raise RequestError(f"row {row}: {column.name} must be {wanted} or null. Received: {_quoted(value)}.")
    if abs(value) > LARGEST:
        raise RequestError(f"row {row}: {column.name} is too large for float32. Received: {_quoted(value)}.")
    return float(value)


def _date(number: np.float32, column: Column) -> str | None:
    """Returns the text of a date; None if it has none that stands for the same float32."""
    try:
        instant = _START + timedelta(days=float(number))
    except OverflowError:
        return None
    whole = column.date == "day" and instant.time() == _START.time()
    text = instant.date().isoformat() if whole else instant.replace(tzinfo=None).isoformat()
    return text if np.float32(days(text)) == number else None


def _index(value: Any, column: Column, known: Mapping[str, int], row: int, unknown: _UnknownCategories) -> float:
    if value is None or (isinstance(value, float) and np.isnan(value)):
        return MISSING
    if not isinstance(value, str | int | float):
        raise RequestError(f"row {row}: {column.name} must be a text or null. Received: {_quoted(value)}.")
    if (found := category_index(value, known)) is None:
        unknown.add(column.name, value, row)
        return MISSING
    return float(found)


def category_index(value: str | float, known: Mapping[str, int]) -> int | None:
    """Returns the index of a category.

    Args:
        value: its name; a number or truth value stands for the name that reads like it. If the names are truth values,
            they may be written in any case.
        known: indices by name.

    Returns:
        The index; None for an unknown category.

    Example:
        category_index(3, {"2": 0, "3": 1})  # 1
    """
    texts = [str(value)]
    if isinstance(value, bool) or known.keys() <= TRUTH_VALUES:
        texts.append(str(value).lower())
    elif isinstance(value, float) and value.is_integer():
        texts.append(str(int(value)))
    return next((known[text] for text in texts if text in known), None)


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= QUOTED else f"{text[:QUOTED]}..."


def _listed(content: Manifest) -> str:
    names = [column.name for column in content.columns]
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return f"{', '.join(names[:NAMES])}{more}"
