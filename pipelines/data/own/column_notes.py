"""Peculiarities of columns: numbers and dates read as text, texts that differ only in case, digits lost in float32."""

import re
from collections import Counter
from collections.abc import Iterable

import numpy as np

from serving.rows import DATE, days

# A column holds numbers, or dates, in another notation if this share of its texts are some.
NUMBERS = 0.9
# With at most this many different numbers, other texts may be categories next to them: 0, 1, 2, 3+.
FEW = 20
# Lost digits matter if a number changes by more than this share of the standard deviation.
LOST = 1e-3
# Variants in a note.
SHOWN = 4
PLAIN_NUMBERS = (
    "Write plain numbers, 1234.5 (or 1234,5 in a file with decimal commas), and leave cells without a number empty."
)
_THOUSANDS = r"[+-]?\d{1,3}(?:([,.' \u00a0\u202f\u2019])\d{3}(?:\1\d{3})*)(?:[.,]\d+)?"
_DECIMAL_COMMA = r"[+-]?\d*,\d+"
_PLAIN = r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_ANY = f"(?:{_THOUSANDS}|{_DECIMAL_COMMA}|{_PLAIN})"
_NOTATIONS = {
    "percent signs": re.compile(rf"{_ANY}\s?%"),
    "thousands separators": re.compile(_THOUSANDS),
    "decimal commas": re.compile(_DECIMAL_COMMA),
    "minus signs that are no hyphens": re.compile(rf"[\u2212\u2013]{_ANY}"),
    # Last, because the signs are optional.
    "currency signs": re.compile(rf"(?:[+-]?[$\u20ac\u00a3\u00a5]\s?)?{_ANY}(?:\s?[$\u20ac\u00a3\u00a5])?"),
}
_WITHOUT = "cells without a number"
# Postcodes, telephone numbers and other codes, which are no numbers.
_CODE = re.compile(r"0\d[\d .,'-]*")
_DAY, _MONTH, _YEAR = r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"(?:\d{2}|\d{4})"
_TIME = r"(?:[ T]\d{1,2}:\d{2}.*)?"
_ISO_DATE = re.compile(rf"\d{{4}}-\d\d-\d\d{_TIME}")
_OFFSET = re.compile(r":\d\d[\d.]*\s?(?:Z|[+-]\d\d(?::?\d\d)?)$")
_OTHER_DATE = re.compile(
    rf"(?:{_DAY}([./-]){_MONTH}\1{_YEAR}|{_MONTH}([./-]){_DAY}\2{_YEAR}|\d{{4}}([./]){_MONTH}\3{_DAY}){_TIME}"
    # Years with months.
    r"|(?:19|20)\d\d-(?:0[1-9]|1[0-2])"
)


def of_texts(name: str, texts: np.ndarray, point: str) -> list[str]:
    """Returns notes on numbers and dates of a column that are read as text.

    Args:
        name: name of the column.
        texts: its values; see `notation`.
        point: decimal point of the file.
    """
    counts = _counted(texts)
    seen, day = _notation(counts, point), _date(counts)
    notes = [f"{name} has numbers that are read as text: {seen}"] if seen else []
    return notes + ([f"{name} has dates that are read as text{day}"] if day else [])


def notation(texts: np.ndarray, point: str) -> str:
    """Returns why numbers are read as texts, such as "thousands separators (1,234.50). Write plain numbers, ...".

    Args:
        texts: values of a column, objects with None for missing ones.
        point: decimal point of the file.

    Returns:
        The reason with advice; nothing for other texts.
    """
    return _notation(_counted(texts), point)


def _counted(texts: np.ndarray) -> Counter[str]:
    """Counts the texts of a column, without missing ones."""
    return Counter(text for text in texts.tolist() if text is not None)


def _notation(counts: Counter[str], point: str) -> str:
    found: dict[str, str] = {}
    others: list[str] = []
    # Plain numbers with a point, which may separate thousands.
    pointed: list[str] = []
    numbers = dashes = 0
    for text, count in counts.items():
        if _CODE.fullmatch(text):
            return ""
        if re.fullmatch("[-\u2013\u2014]+", text):
            found.setdefault(_WITHOUT, text)
            dashes += count
            continue
        plain = re.fullmatch(_PLAIN, text) is not None
        kind = None if plain else next((name for name, form in _NOTATIONS.items() if form.fullmatch(text)), None)
        if kind is not None:
            found.setdefault(kind, text)
        elif not plain:
            others.append(text)
        elif "." in text:
            pointed.append(text)
        numbers += count * (plain or kind is not None)
    if not numbers or numbers + dashes < NUMBERS * counts.total():
        return ""
    if point == "," and pointed and all(re.fullmatch(r"[+-]?[1-9]\d{0,2}(?:\.\d{3})+", text) for text in pointed):
        found.setdefault("thousands separators", pointed[0])
    advice = PLAIN_NUMBERS
    if others and (len(counts) - len(others) > FEW or any(map(_ISO_DATE.fullmatch, others))):
        if not found:
            # Codes such as A17 may be among others that read like numbers.
            advice = f"If these are numbers, {PLAIN_NUMBERS[0].lower()}{PLAIN_NUMBERS[1:]}"
        found.setdefault(_WITHOUT, others[0])
    return ", ".join(f"{kind} ({text})" for kind, text in found.items()) + f". {advice}" if found else ""


def _date(counts: Counter[str]) -> str:
    """Returns why dates are read as text, with advice; nothing for other texts."""
    dates = {text: count for text, count in counts.items() if _ISO_DATE.fullmatch(text) or _OTHER_DATE.fullmatch(text)}
    if not dates or sum(dates.values()) < NUMBERS * counts.total():
        return ""
    if other := next(filter(_OTHER_DATE.fullmatch, dates), None):
        return f": {other}. Write them as {DATE}."
    wrong = next((text for text in counts if days(text) is None), None)
    if wrong is None and len({_OFFSET.search(text) is None for text in dates}) == 1:
        # Those of a Parquet file may be texts there.
        return f": {next(iter(dates))}. Convert the column to dates."
    why = "some have a UTC offset and others have none" if wrong is None else f"of {wrong}"
    return f", because {why}. Write all of them as {DATE}, and leave cells without a date empty."


def variants(names: Iterable[str | None]) -> str:
    """Returns the first texts that differ only in case, with commas between them; nothing if there are none."""
    spellings: dict[str, set[str]] = {}
    for name in {*names} - {None}:
        spellings.setdefault(str(name).casefold(), set()).add(str(name))
    found = next((sorted(each) for _, each in sorted(spellings.items()) if len(each) > 1), [])
    return ", ".join(found[:SHOWN])


def lost_digits(numbers: np.ndarray, *, dates: bool = False) -> str:
    """Returns what a column loses in float32, as the rest of a sentence with advice; nothing if it does not matter.

    Args:
        numbers: values of a column, float64 with NaN for missing ones.
        dates: whether they are days since 1970.
    """
    known = numbers[~np.isnan(numbers)]
    if not len(known):
        return ""
    rounded = known.astype(np.float32)
    before, after = len(np.unique(known)), len(np.unique(rounded))
    if after == before or np.abs(known - rounded).max() <= LOST * known.std():
        return ""
    least = f"{known.min():,.0f}"
    advice = (
        "Give the time since a start of your own, as a number"
        if dates
        else f"Subtract a constant such as {least}, in new rows too"
    )
    return f"{before:,} different values become {after:,} in float32, in which nets compute. {advice}."
