"""The user's own labelled images, before they are decoded."""

import re
import unicodedata
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

import numpy as np

from pipelines.core.console import printable
from pipelines.core.errors import UserError
from serving.image_files import FORMATS

Split = Literal["train", "validation", "test"]
# An encoded file, or pixels: uint8 [h, w], [h, w, 1], [h, w, 3] or [h, w, 4].
Content: TypeAlias = bytes | np.ndarray
# Common names of splits.
SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("val", "valid", "validation", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
_SUFFIXES = {"JPEG": (".jpg", ".jpeg", ".jfif"), "TIFF": (".tif", ".tiff"), "PPM": (".ppm", ".pgm", ".pbm")}
SUFFIXES = frozenset(
    (
        *(suffix for form in FORMATS for suffix in _SUFFIXES.get(form, (f".{form.lower()}",))),
        # Pillow cannot decode these (AVIF: in some builds): they count as damaged, with advice on how to convert them.
        *(".heic", ".heif", ".avif"),
    )
)
# Values are no classes or categories if the different ones exceed this share, and are at least this many.
IDENTIFIER, FEWEST = 0.9, 10


@dataclass(frozen=True)
class Item:
    """A labelled image."""

    name: str
    """Path relative to the data, or number of the row; used in messages."""
    label: str | tuple[str, ...]
    """Name of its class; or names of its classes, if an image may have any number of them."""
    read: Callable[[], Content]
    """Reads the image."""
    split: Split | None = None
    """Split that the data assign it to; None if they assign none."""
    group: str | None = None
    """Images of one group, such as a patient's, stay in one split; None if it belongs to no group."""

    @property
    def labels(self) -> tuple[str, ...]:
        """Names of its classes."""
        return (self.label,) if isinstance(self.label, str) else self.label


def name_of(value: object) -> str:
    """Returns the name of a class or a group that a value of the data stands for; an empty one if it is missing.

    Names that look the same are the same: an accent is part of its letter (NFC), which it is not in names of a Mac's
    files.

    Args:
        value: text, bytes or a number; None or NaN if it is missing.
    """
    return unicodedata.normalize("NFC", one_line(value))


def one_line(value: object) -> str:
    """Returns a value of the data, or the name of a column, as text of one line; an empty one if it is missing.

    White space around it is removed, and line breaks become spaces, because TFDS writes the classes one to a line.

    Args:
        value: text, bytes or a number; None or NaN if it is missing.
    """
    if value is None or (isinstance(value, float | np.floating) and np.isnan(value)):
        return ""
    text = value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else printable(str(value))
    return re.sub(r"\s*[\r\n]\s*", " ", text.strip())


def split_of(value: object, where: str, column: str | None = None) -> Split:
    """Returns the split that a value of the data stands for.

    Args:
        value: name of a split, in any case; or None.
        where: used in messages.
        column: the column of splits that it is in, for messages; None if it is in none.

    Raises:
        UserError: the name is unknown, or missing.
    """
    name = "" if value is None else str(value).strip()
    found = SPLITS.get(name.lower())
    if found is None:
        problem = f"names the split {name!r}" if name else "has no split"
        advice = f" Correct it in the column {column}, or rename the column if it names no splits." if column else ""
        raise UserError(f"{where} {problem}. Expected train, validation or test.{advice}")
    return found


def split_in(path: Path) -> Split | None:
    """Returns the split that a file belongs to by its name, such as `train-0000.tar`, or by that of a folder.

    Args:
        path: path relative to the data.
    """
    words = [re.split("[-_.]", part)[0].lower() for part in path.parts]
    return next((SPLITS[word] for word in words if word in SPLITS), None)


def is_hidden(path: Path) -> bool:
    """Returns whether a file or a folder above it is hidden; the folder that macOS adds to archives counts as hidden.

    Args:
        path: path relative to the data.
    """
    return any((part.startswith(".") and part != "..") or part == "__MACOSX" for part in path.parts)


def in_order(names: Collection[str]) -> tuple[str, ...]:
    """Sorts names: in the order of numbers if all are numbers, else by name."""
    return tuple(sorted(names, key=(lambda name: (int(name), name)) if all(map(_is_number, names)) else None))


def are_identifiers(different: int, count: int) -> bool:
    """Returns whether values differ in nearly every example, so that they are neither classes nor categories.

    Args:
        different: number of different values.
        count: number of values.
    """
    return different >= FEWEST and different > IDENTIFIER * count


def _is_number(name: str) -> bool:
    return name.isascii() and name.removeprefix("-").isdigit()
