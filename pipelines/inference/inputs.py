"""Images from files, folders, globs, tar files and data sets, in a deterministic order."""

import hashlib
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

from pipelines.core import frameworks
from pipelines.core.console import printable
from pipelines.core.errors import UserError
from pipelines.core.url import Stored, Url, location
from pipelines.inference.image_ref import TFDS, ImageRef, is_image
from serving.errors import ImageError

if TYPE_CHECKING:
    from pipelines.data.stream import Stream

TARS = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz")
STDIN = "-"
SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")


class Source(Protocol):
    """The images of one command-line argument."""

    def __iter__(self) -> Iterator[ImageRef]:
        """Iterates over the images, in the same order each time."""

    def count(self) -> int:
        """Estimates the number of images without reading them."""


class Fetched(NamedTuple):
    """A fetched image, which any thread may decode."""

    name: str
    """See `ImageRef`."""
    content: bytes | Path | Stored | ImageError
    """The encoded image, its file or object, or the reason why it is not available."""


class Listing:
    """The images of several sources, one source after another.

    A source that fails sets `failure` and ends the listing, so that earlier images can still be finished.

    Args:
        sources: the sources.

    Example:
        for image in Listing(sources(["photos", "more.tar"], None)).fetched():
            print(image.name)
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self.failure: UserError | None = None
        self.counts: list[int] = []
        """Number of images in each exhausted source."""
        self._rest = self._all(sources)

    def names(self) -> Iterator[str]:
        """Yields the names of the next images, skipping the images without reading them."""
        return (printable(image.name) for image in self._rest)

    def fetched(self) -> Iterator[Fetched]:
        """Fetches the remaining images."""
        for name, fetch in self._rest:
            try:
                yield Fetched(printable(name), fetch())
            except ImageError as error:
                yield Fetched(printable(name), error)
            except UserError as error:
                self.failure = error
                return

    def _all(self, sources: Sequence[Source]) -> Iterator[ImageRef]:
        for source in sources:
            count = 0
            try:
                for image in source:
                    count += 1
                    yield image
            except UserError as error:
                self.failure = error
                return
            self.counts.append(count)


def sources(words: Sequence[str], data_dir: Path | None) -> list[Source]:
    """Resolves arguments to sources before the first image is read.

    Args:
        words: files, folders (searched recursively), tar files and globs, or their URLs; `tfds:DATA/SPLIT`; and "-" for
            an image on the standard input.
        data_dir: folder of prepared data.

    Returns:
        One or more sources for each argument; matches of a glob are sorted by name.

    Raises:
        UserError: an argument matches nothing, or a tar file is invalid.
    """
    found: list[Source] = []
    for word in words:
        if word == STDIN:
            found.append(_Stdin())
        elif word.startswith(TFDS):
            found.append(_split(word.removeprefix(TFDS), data_dir))
        elif isinstance(place := location(word), Url):
            found += _at(place)
        elif os.path.lexists(word):
            found.append(_source(word))
        else:
            matches = _globbed(word)
            if not matches:
                raise UserError(f"{word} is not a file or a folder, and matches nothing as a glob. Check the path.")
            found += map(_source, matches)
    return found


def _source(path: str) -> Source:
    # pathlib is avoided here and below, because it would dominate the run time for a million files.
    if os.path.isdir(path):  # noqa: PTH112
        return _Folder(path)
    if path.lower().endswith(TARS):
        from pipelines.inference.tars import Tar

        return Tar(path)
    return _File(path)


def _at(url: Url) -> list[Source]:
    if not (matches := url.matches()):
        raise UserError(f"there is nothing at {url}. Expected an image, a tar file, a folder of images, or a glob.")
    return [_stored(match, files) for match, files in matches.items()]


def _stored(url: Url, files: Sequence[Stored]) -> Source:
    if url.name.lower().endswith(TARS):
        from pipelines.inference.tars import Tar

        return Tar(str(url))
    return _Objects(url, files)


def _globbed(pattern: str) -> list[str]:
    """Returns sorted matches without duplicates, because `photos/**` matches both folders and their contents."""
    path = Path(pattern)
    # Unlike the module glob, pathlib does not follow cyclic links to folders.
    try:
        matches = sorted(Path(path.anchor).glob(str(path.relative_to(path.anchor))), key=str)
    except (ValueError, IndexError) as error:
        raise UserError(
            f"{pattern!r} is neither a file nor a folder nor a glob. Expected a glob such as photos/**/*.jpg."
        ) from error
    unique: list[str] = []
    folders: set[Path] = set()
    for match in matches:
        if folders.isdisjoint(match.parents):
            unique.append(str(match))
            if match.is_dir():
                folders.add(match)
    return unique


@dataclass(frozen=True)
class _Objects:
    """The images in a folder of a bucket; or a single object, whatever its suffix, as with a file.

    Args:
        url: the URL of the folder or of the object.
        files: all objects there.
    """

    url: Url
    files: Sequence[Stored]

    def __iter__(self) -> Iterator[ImageRef]:
        for one in self._images:
            yield ImageRef(str(one.url), lambda one=one: one)  # type: ignore[misc]

    def count(self) -> int:
        """Returns the number of images."""
        return len(self._images)

    @cached_property
    def _images(self) -> list[Stored]:
        return [one for one in self.files if one.url == self.url or is_image(one.url.name)]


@dataclass(frozen=True, slots=True)
class _File:
    path: str

    def __iter__(self) -> Iterator[ImageRef]:
        yield _ref(self.path)

    def count(self) -> int:
        return 1


class _Stdin:
    def __iter__(self) -> Iterator[ImageRef]:
        yield ImageRef(STDIN, sys.stdin.buffer.read)

    def count(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class _Folder:
    path: str

    def __iter__(self) -> Iterator[ImageRef]:
        return map(_ref, _walk(self.path))

    def count(self) -> int:
        return sum(1 for _ in _walk(self.path))


@dataclass(frozen=True)
class _Split:
    """The images of a split of a TFDS data set, numbered from 0."""

    word: str
    stream: "Stream"
    files: Sequence[str | os.PathLike[str]]
    """Files of the split."""

    def __iter__(self) -> Iterator[ImageRef]:
        number = 0
        for batch in self.stream.encoded:
            for content in batch:
                yield ImageRef(f"{TFDS}{self.word}:{number}", partial(bytes, content))
                number += 1

    def count(self) -> int:
        return len(self.stream)


def _split(word: str, data_dir: Path | None) -> _Split:
    """Opens a split such as "mnist/test", preparing its data set if necessary; imports TensorFlow."""
    data, _, name = word.rpartition("/")
    split = next((known for known in SPLITS if known == name), None)
    if split is None or not data:
        raise UserError(f"{TFDS}{word} names no split. Expected one of {', '.join(SPLITS)}, as in {TFDS}mnist/test.")
    frameworks.load()
    from pipelines.data import sources
    from pipelines.data.stream import Stream

    info = sources.describe(data, data_dir)
    if len(info.shape) == 1:
        raise UserError(f"the data set '{data}' has no images to classify. Name another one.")
    if not info.counts[split]:
        available = ", ".join(known for known in SPLITS if info.counts[known])
        raise UserError(f"the data set '{data}' has no {split} examples. It has: {available}.")
    stream = sources.load(data, split, data_dir, memory=0)
    assert isinstance(stream, Stream), "images are streamed if no memory is allowed"
    return _Split(word, stream, sources.open_builder(data, data_dir).info.splits[split].filepaths)


def _digest(paths: Sequence[str | os.PathLike[str]]) -> str:
    content = hashlib.sha256()
    for path in sorted(map(Path, paths)):
        with path.open("rb") as file:
            content.update(hashlib.file_digest(file, "sha256").digest())
    return content.hexdigest()


def digests(sources: Sequence[Source]) -> list[str]:
    """Returns a digest of each split of a data set that is among the sources."""
    return [_digest(source.files) for source in sources if isinstance(source, _Split)]


def _ref(path: str) -> ImageRef:
    return ImageRef(path, partial(Path, path))


def _walk(folder: str) -> Iterator[str]:
    """Yields the paths of the images in a folder; for a subfolder that cannot be listed, yields its own path.

    Links to files are followed; links to folders are not, because they could be cyclic.
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
            yield from _walk(path)
        else:
            yield path


def _is_wanted(entry: os.DirEntry[str]) -> bool:
    if entry.is_dir(follow_symlinks=False):
        return True
    if not is_image(entry.name):
        return False
    if entry.is_symlink():
        # A broken link is listed, and reported when it is read.
        return not os.path.isdir(entry.path)  # noqa: PTH112
    # A named pipe would block.
    return entry.is_file(follow_symlinks=False)
