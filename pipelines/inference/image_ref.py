"""References to images that have not been read yet."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from pipelines.core.url import Stored

SUFFIXES = frozenset(
    (
        *(".png", ".jpg", ".jpeg", ".jfif", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".avif"),
        # Not decoded: they get an error row that says how to convert them.
        *(".heic", ".heif"),
    )
)
# Prefix of a split of a data set: tfds:mnist/test.
TFDS = "tfds:"


class ImageRef(NamedTuple):
    """An image that has not been read yet."""

    name: str
    """Path; archive and member; or data set, split and number."""
    fetch: Callable[[], bytes | Path | Stored]
    """Returns the encoded image, its file or object; call it before requesting the next image. Raises ImageError if the
    image is not available, UserError if the following ones are not either."""


def is_image(name: str) -> bool:
    """Returns whether a file in a folder or an archive counts as an image, by its suffix."""
    return os.path.splitext(name)[1].lower() in SUFFIXES  # noqa: PTH122
