"""Pictures from folders, globs, tar files and data sets, one after another, in an order that is always the same."""

import glob
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from pipelines.errors import UserError
from serving import pictures

SUFFIXES = frozenset((".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"))
TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".tar.zst")
SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")
# Begins the name of a TFDS split: tfds:mnist/test.
TFDS = "tfds:"


class Picture(NamedTuple):
    """A picture that has not been decoded yet."""

    name: str
    """Path, or archive and member, or data set, split and number."""
    decode: Callable[[], np.ndarray]
    """To uint8 `[height, width, 4]`; in any thread. Raises PictureError."""


def listed(words: Sequence[str], data_dir: Path | None) -> Iterator[Picture]:
    """All pictures that some words mean.

    Args:
        words: files, folders (with all that is in them), globs, tar files, and `tfds:DATA/SPLIT`.
        data_dir: where prepared data lies.

    Yields:
        The pictures; folders and globs in the order of their names, tar files and data sets in their own.

    Raises:
        UserError: a word means nothing.

    Example:
        for picture in listed(["photos/", "more.tar"], None):
            rgba = picture.decode()
    """
    for word in words:
        if word.startswith(TFDS):
            yield from _data_set(word.removeprefix(TFDS), data_dir)
            continue
        path = Path(word)
        if path.is_dir():
            yield from map(_file, _walked(path))
        elif path.name.endswith(TARS) and path.exists():
            yield from _archived(path)
        elif path.exists():
            yield _file(path)
        else:
            found = sorted(glob.glob(word, recursive=True))  # noqa: PTH207  pathlib's skips what it cannot read
            if not found:
                raise UserError(f"{word} is no file, no folder, and no glob that anything matches.")
            yield from listed([glob.escape(one) if glob.has_magic(one) else one for one in found], data_dir)


def _file(path: Path) -> Picture:
    return Picture(str(path), lambda: pictures.read(path))


def _walked(folder: Path) -> Iterator[Path]:
    for here, inner, names in os.walk(folder):
        # Walked in this order.
        inner.sort()
        for name in sorted(names):
            if os.path.splitext(name)[1].lower() in SUFFIXES:  # noqa: PTH122  a Path for each takes longer than the rest
                yield Path(here, name)


def _archived(path: Path) -> Iterator[Picture]:
    try:
        with tarfile.open(path, "r|*") as archive:
            for member in archive:
                # What tarfile has seen it keeps: of a million members that is a gigabyte.
                archive.members = []  # type: ignore[attr-defined]
                if member.isfile() and os.path.splitext(member.name)[1].lower() in SUFFIXES:  # noqa: PTH122
                    content = archive.extractfile(member)
                    assert content is not None, "a file has content"
                    yield _encoded(f"{path}:{member.name}", content.read())
    except (tarfile.TarError, OSError, EOFError) as error:
        raise UserError(f"{path} cannot be read as a tar file: {error}.") from None


def _encoded(name: str, content: bytes) -> Picture:
    return Picture(name, lambda: pictures.decode(content, name))


def _data_set(word: str, data_dir: Path | None) -> Iterator[Picture]:
    data, _, name = word.rpartition("/")
    split = next((known for known in SPLITS if known == name), None)
    if split is None or not data:
        raise UserError(f"{TFDS}{word} is no split. Name one as {TFDS}mnist/test.")
    from pipelines import frameworks

    frameworks.load()
    from pipelines.data import sources

    found = sources.load(data, split, data_dir)
    batches = [found.images] if isinstance(found, sources.Examples) else found.images
    number = 0
    for batch in batches:
        for image in batch:
            yield Picture(f"{TFDS}{word}:{number}", partial(_rgba, image))
            number += 1


def _rgba(image: np.ndarray) -> np.ndarray:
    size = image.shape[:2]
    return np.concatenate([np.broadcast_to(image, (*size, 3)), np.full((*size, 1), 255, np.uint8)], axis=-1)
