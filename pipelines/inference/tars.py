"""Images in a tar file, read sequentially without unpacking it."""

import lzma
import re
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from pipelines.core.errors import UserError
from pipelines.core.files import has_more
from pipelines.core.url import Url, location
from pipelines.inference.image_ref import ImageRef, is_image
from serving.errors import ImageError

# Size above which a member could not be decoded.
BYTES = 2**29
# Bytes per read, and the number of images after which the total is estimated.
BUFFER, SAMPLE = 2**18, 1000
# Magic bytes of gzip, bzip2 and xz.
PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ")
# Header of a regular file with a name of up to 100 bytes and a size below 8 GiB, as nearly all headers are.
PLAIN = re.compile(
    rb"(?=(?P<name>[^\0]{1,100})).{100}.{24}(?P<size>[0-7]{11})[\0 ].{12}(?P<sum>[0-7]{6})\0 0.{188}\0.{166}", re.DOTALL
)
_DAMAGE = (tarfile.TarError, OSError, EOFError, zlib.error, lzma.LZMAError)


class _Header(tarfile.TarInfo):
    """A header that reports damage, which tarfile would treat as the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> "_Header":
        plain = PLAIN.fullmatch(buf)
        if not plain or int(plain["sum"], 8) != sum(buf) - sum(plain["sum"] + b"\0 ") + 8 * ord(" "):
            return super().frombuf(buf, encoding, errors)
        # Faster than tarfile's own parser, because times, owners and other unused fields are left out.
        header = cls(plain["name"].decode(encoding, errors))
        header.size = int(plain["size"], 8)
        return header

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> "_Header":
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            # The end-of-archive marker.
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"{error} at byte {archive.offset:,}") from None


class _Window:
    """A file with large reads that tracks its position.

    tarfile calls `tell` three times per member. For a buffered file, each call is a system call, which a busy thread
    may delay.
    """

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._start, self._part, self._at = 0, b"", 0

    def tell(self) -> int:
        """Returns the position."""
        return self._at

    def seek(self, at: int) -> int:
        """Sets the position."""
        self._at = at
        return at

    def read(self, size: int) -> bytes:
        """Reads the next bytes; fewer at the end of the file."""
        first = self._at - self._start
        if not 0 <= first <= len(self._part) - size:
            self._file.seek(self._at)
            self._start, self._part, first = self._at, self._file.read(max(size, BUFFER)), 0
        found = self._part[first : first + size]
        self._at += len(found)
        return found


@dataclass(frozen=True)
class Tar:
    """The images of a tar file, compressed or not; nested tar files are ignored.

    Args:
        path: path of the file, or its URL; an object is read piece by piece.

    Raises:
        UserError: the file is not a tar file; or, while images are read, it is damaged or incomplete.
    """

    path: str

    def __post_init__(self) -> None:
        with self._opened():
            pass

    def __iter__(self) -> Iterator[ImageRef]:
        with self._opened() as (archive, _):
            for member in _members(archive):
                name = f"{self.path}:{member.name}"
                yield ImageRef(name, partial(self._content, archive, member, name))
            if has_more(archive):
                raise _damaged(self.path, "it goes on after the end of its archive, like tar files joined by cat")

    def count(self) -> int:
        """Estimates the number of images from the size of the first images."""
        count = 0
        with self._opened() as (archive, file):
            for _ in _members(archive):
                count += 1
                if count == SAMPLE:
                    return round(count * _size(self.path) / file.tell())
        return count

    def _content(self, archive: Any, member: tarfile.TarInfo, name: str) -> bytes:
        if not member.isfile() or member.issparse():
            raise ImageError(f"{name} is not a regular file: links in an archive are not followed.")
        if member.size > BYTES:
            raise ImageError(f"{name} has {member.size:,} bytes, more than the limit of {BYTES:,}.")
        try:
            # Faster than `extractfile`, which creates several objects.
            archive.fileobj.seek(member.offset_data)
            content: bytes = archive.fileobj.read(member.size)
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None
        if len(content) < member.size:
            raise _damaged(self.path, f"it ends within {member.name}")
        return content

    @contextmanager
    def _opened(self) -> Iterator[tuple[tarfile.TarFile, IO[bytes]]]:
        """Opens the archive and yields it together with its file."""
        try:
            with _open(self.path) as file:
                packed = file.read(max(map(len, PACKED))).startswith(PACKED)
                file.seek(0)
                # Decompressors need a full file object.
                source: Any = file if packed else _Window(file)
                with tarfile.open(fileobj=source, mode="r:*" if packed else "r:", tarinfo=_Header) as archive:
                    yield archive, source
        except _DAMAGE as error:
            raise _damaged(self.path, error) from None


def _open(path: str) -> IO[bytes]:
    place = location(path)
    return place.open() if isinstance(place, Url) else place.open("rb", buffering=BUFFER)


def _size(path: str) -> int:
    place = location(path)
    return place.size() if isinstance(place, Url) else place.stat().st_size


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    while (member := archive.next()) is not None:
        # tarfile keeps all members, which would be a gigabyte for a million of them.
        _forget(archive)
        if is_image(member.name) and not member.isdir():
            yield member


def _forget(archive: Any) -> None:
    archive.members.clear()


def _damaged(path: str, why: object) -> UserError:
    return UserError(f"{path} cannot be read as a tar file: {why}.")
