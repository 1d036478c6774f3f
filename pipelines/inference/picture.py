"""A picture that is to be classified, before it is read."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))
# Begins the name of a split of a data set: tfds:mnist/test.
TFDS = "tfds:"


class Picture(NamedTuple):
    """A picture that has not been read yet."""

    name: str
    """Path; or archive and member; or data set, split and number."""
    fetch: Callable[[], bytes | Path]
    """Gives the encoded picture, or the file that it lies in; to be called before the next picture is asked for. Raises
    PictureError if this one cannot be had, UserError if none can that follows."""


def is_picture(name: str) -> bool:
    """Whether a file in a folder or an archive is taken for a picture, by the end of its name."""
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122
