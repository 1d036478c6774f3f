"""Pictures from folders, globs, tar files and data sets, one after another, in an order that is always the same."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from pipelines.core.errors import UserError
from pipelines.inference.picture import TFDS, Picture, is_picture
from serving.errors import PictureError

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")


class Source(Protocol):
    """What one word of the command line means."""

    def __iter__(self) -> Iterator[Picture]:
        """The pictures, in the same order each time."""

    def count(self) -> int:
        """About how many there are, found without reading them."""


class Fetched(NamedTuple):
    """A picture that can be decoded in any thread."""

    name: str
    """See `Picture`."""
    content: bytes | Path | PictureError
    """The encoded picture, the file that it lies in, or why it cannot be had."""


class Listing:
    """The pictures of several sources, one after another.

    A source that breaks off ends the pictures and is told by `failure`, so that what came before it can be finished.

    Args:
        sources: where from.

    Example:
        for picture in Listing(sources(["photos", "more.tar"], None)).fetched():
            print(picture.name)
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.failure: UserError | None = None
        self.counts: list[int] = []
        """How many pictures the sources had that are behind us."""
        self._rest = self._all(sources)

    def names(self) -> Iterator[str]:
        """Goes past the next pictures without reading them."""
        return (printable(picture.name) for picture in self._rest)

    def fetched(self) -> Iterator[Fetched]:
        """The pictures from here on."""
        for name, fetch in self._rest:
            try:
                yield Fetched(printable(name), fetch())
            except PictureError as error:
                yield Fetched(printable(name), error)
            except UserError as error:
                self.failure = error
                return

    def _all(self, sources: Sequence[Source]) -> Iterator[Picture]:
        for source in sources:
            count = 0
            try:
                for picture in source:
                    count += 1
                    yield picture
            except UserError as error:
                self.failure = error
                return
            self.counts.append(count)


def sources(words: Sequence[str], data_dir: Path | None) -> list[Source]:
    """Finds what some words mean, before the first picture is read.

    Args:
        words: files, folders (with all pictures that are in them), globs, tar files, and `tfds:DATA/SPLIT`.
        data_dir: where prepared data lies.

    Returns:
        One or more sources for each word; a glob has them in the order of their names.

    Raises:
        UserError: a word means nothing, or a tar file is none.
    """
    found: list[Source] = []
    for word in words:
        if word.startswith(TFDS):
            # TensorFlow is imported for those who ask for it.
            from pipelines.inference.splits import split

            found.append(split(word.removeprefix(TFDS), data_dir))
        elif os.path.lexists(word):
            found.append(_source(word))
        else:
            matches = _globbed(word)
            if not matches:
                raise UserError(f"{word} is no file, no folder, and no glob that anything matches.")
            found += map(_source, matches)
    return found


def _source(path: str) -> Source:
    # Not through pathlib here and below: of a million files it would take longer than all the rest.
    if os.path.isdir(path):  # noqa: PTH112
        return _Folder(path)
    if path.lower().endswith(TARS):
        from pipelines.inference.tars import Tar

        return Tar(path)
    return _File(path)


def _globbed(pattern: str) -> list[str]:
    """What matches, sorted; nothing twice: `photos/**` matches folders, and again what is in them."""
    path = Path(pattern)
    # Other than that of the module glob, this one does not go round in links to folders.
    matches = Path(path.anchor).glob(str(path.relative_to(path.anchor)))
    kept: list[str] = []
    folders: set[Path] = set()
    for match in sorted(matches, key=str):
        if folders.isdisjoint(match.parents):
            kept.append(str(match))
            if match.is_dir():
                folders.add(match)
    return kept


@dataclass(frozen=True, slots=True)
class _File:
    path: str

    def __iter__(self) -> Iterator[Picture]:
        yield _picture(self.path)

    def count(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str

    def __iter__(self) -> Iterator[Picture]:
        return map(_picture, _walked(self.path))

    def count(self) -> int:
        return sum(1 for _ in _walked(self.path))


def _picture(path: str) -> Picture:
    return Picture(path, partial(Path, path))


def _walked(folder: str) -> Iterator[str]:
    """Paths of the pictures in a folder. One in it that cannot be listed stands for what it holds.

    Links to files are taken, links to folders are not, as they could go round in circles.
    """
    try:
        with os.scandir(folder) as entries:
            found = sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if _is_wanted(entry))
    except OSError:
        yield folder
        return
    for name, is_folder in found:
        path = os.path.join(folder, name)  # noqa: PTH118
        if is_folder:
            yield from _walked(path)
        else:
            yield path


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return True
    if not is_picture(entry.name):
        return False
    if entry.is_symlink():
        # One that leads nowhere is told when it is read.
        return not os.path.isdir(entry.path)  # noqa: PTH112
    # Not a pipe, which would be waited for.
    return entry.is_file(follow_symlinks=False)


def printable(name: str) -> str:
    r"""A name with those bytes of it that are no UTF-8 as \xe9, as text in Parquet can have no others."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
