"""Objects in a bucket, or at any other URL that fsspec opens, with the methods of `pathlib.Path` that are used here.

fsspec is imported only when a URL is used. Credentials and endpoint come from the usual places of each store, such as
AWS's variables and files. An object appears at once and complete, so that no temporary name is needed to write one.
"""

import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, BinaryIO, NamedTuple, cast

from pydantic import BeforeValidator, PlainSerializer

from pipelines.core.errors import UserError, disk_is_full
from serving import stores

# A URL with wildcards, and the folder above the first of them.
GLOB = re.compile(r"([^/]+//[^*?[]+)/[^/*?[]*[*?[]")
# Bytes of a large object in one request; s3fs makes up to ten requests at the same time, by default of 50 MiB each.
BLOCK = 2**23
# Fields of a listing, by store, that change with the content of an object; the most reliable come first.
STAMPS = (
    *("ETag", "etag", "Content-MD5", "Digest", "blob_id", "mtime", "modified", "Last-Modified", "LastModified"),
    *("last_modified", "modificationTime", "modify", "created"),
)


@dataclass(frozen=True)
class Url:
    """An object in a bucket, or a folder of objects, as `s3://bucket/runs/demo`.

    Operations raise `UserError` if the store cannot be reached or used, and otherwise the errors of files.

    Args:
        text: the URL, without a slash at its end.
    """

    text: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "Url":
        return Url(f"{self.text}/{name}")

    @property
    def name(self) -> str:
        """The last part of the URL."""
        return self.text.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return PurePosixPath(self.name).suffix

    @property
    def parent(self) -> "Url":
        """The URL without its last part."""
        return Url(self.text.rpartition("/")[0])

    def with_name(self, name: str) -> "Url":
        """Returns the URL with another last part. A bucket has none: see `refuse_bucket`."""
        self.refuse_bucket()
        return self.parent / name

    def refuse_bucket(self) -> None:
        """Raises `UserError` if this is a whole bucket, without a folder in it."""
        if "/" not in self.text.partition("://")[2]:
            raise UserError(f"{self} is a whole bucket. Name a folder or an object in it, such as {self}/NAME.")

    def exists(self) -> bool:
        """Returns whether there is such an object or folder."""
        with _reported(self):
            return bool(self._store.exists(self._path))

    def is_file(self) -> bool:
        """Returns whether there is such an object."""
        with _reported(self):
            return bool(self._store.isfile(self._path))

    def is_dir(self) -> bool:
        """Returns whether there are objects below this URL."""
        with _reported(self):
            return bool(self._store.isdir(self._path))

    def files(self) -> "list[Stored]":
        """Returns the object, or all objects below, in the order of a walk that sorts every folder by name."""
        with _reported(self):
            try:
                info = self._store.info(self._path)
            except FileNotFoundError:
                return []
        if info["type"] == "file":
            return [_stored(self, info)]
        found = self._below()
        return [_stored(self / name, found[name]) for name in sorted(found, key=lambda name: name.split("/"))]

    def matches(self) -> "dict[Url, list[Stored]]":
        """Returns the objects here or, if there are none, those of each object or folder that matches this as a glob.

        Matches are in the order of their names. The objects in a folder that matches are no further matches.
        """
        if here := self.files():
            return {self: here}
        literal = GLOB.match(self.text)
        if literal is None:
            return {}
        root = Url(literal[1])
        with _reported(self):
            found = self._store.glob(self._path, detail=True)
        matches: dict[Url, list[Stored]] = {}
        folders: set[str] = set()
        for path, info in sorted(found.items()):
            if not folders.isdisjoint(map(str, PurePosixPath(path).parents)):
                continue
            url = Url(f"{root}{path[len(root._path) :]}")
            if info["type"] == "file":
                matches[url] = [_stored(url, info)]
            elif below := url.files():
                matches[url] = below
                folders.add(path)
        return matches

    def below(self) -> dict[str, int]:
        """Returns the size of each object below this URL, by its path from here."""
        return {name: _stored(self / name, info).size for name, info in self._below().items()}

    def _below(self) -> dict[str, Mapping[str, Any]]:
        """Returns the listing of each object below."""
        with _reported(self):
            try:
                found = self._store.find(self._path, detail=True)
            except FileNotFoundError:
                return {}
        named = {path[len(self._path) + 1 :]: info for path, info in found.items() if info.get("type") == "file"}
        # Some programs write an empty object for a folder, whose name ends in a slash.
        return {name: info for name, info in named.items() if name and not name.endswith("/")}

    def size(self) -> int:
        """Returns the size of the object in bytes."""
        with _reported(self):
            return int(self._store.size(self._path))

    def open(self) -> BinaryIO:
        """Opens the object to read it piece by piece."""
        with _reported(self):
            file = self._store.open(self._path, "rb", block_size=BLOCK, cache_type="readahead")
        return cast("BinaryIO", io.BufferedReader(_Object(self, file)))

    def read_bytes(self) -> bytes:
        """Returns the content of a small object."""
        with _reported(self):
            return bytes(self._store.cat_file(self._path))

    def read_range(self, start: int, end: int) -> bytes:
        """Returns the bytes of the object from one position up to another."""
        with _reported(self):
            return bytes(self._store.cat_file(self._path, start=start, end=end))

    def read_text(self, encoding: str = "utf-8") -> str:
        """Returns the content of a small object as text."""
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> None:
        """Writes a small object."""
        with _reported(self, writes=True):
            self._store.pipe_file(self._path, content)

    def create(self, content: bytes = b"") -> None:
        """Writes a small object unless there is one: of several processes, one succeeds.

        Raises:
            FileExistsError: there is one.
        """
        with _reported(self, writes=True):
            self._store.pipe_file(self._path, content, mode="create")

    def put(self, path: Path) -> None:
        """Writes a file of this machine."""
        with _reported(self, writes=True):
            self._store.put_file(str(path), self._path, chunksize=BLOCK)

    def check_writable(self) -> None:
        """Raises `UserError` unless objects can be written below this URL."""
        probe = self / ".probe"
        probe.write_bytes(b"")
        probe.unlink()

    def copy(self, to: "Url") -> None:
        """Copies the object within its store."""
        with _reported(self, writes=True):
            self._store.cp_file(self._path, to._path)

    def unlink(self) -> None:
        """Removes the object, if there is one."""
        with _reported(self):
            try:
                self._store.rm_file(self._path)
            except FileNotFoundError:
                return

    def rmtree(self) -> None:
        """Removes all objects below this URL."""
        with _reported(self):
            if found := self._store.find(self._path):
                self._store.rm(found)

    @property
    def _store(self) -> Any:
        return _store(self.text.partition("://")[0])

    @property
    def _path(self) -> str:
        return str(self._store._strip_protocol(self.text))


class _Object(io.RawIOBase):
    """An open object, whose errors are those of `Url`."""

    def __init__(self, url: Url, file: Any) -> None:
        super().__init__()
        self._url = url
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def readinto(self, buffer: Any) -> int:
        with _reported(self._url):
            content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        return len(content)

    def close(self) -> None:
        self._file.close()
        super().close()


class Stored(NamedTuple):
    """An object of a listing."""

    url: Url
    """Its URL."""
    size: int
    """Its size in bytes."""
    stamp: str
    """Text that changes with its content; empty if the store has none."""


def is_url(word: str) -> bool:
    """Returns whether a word names a place by its URL."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", word) is not None


def location(word: str) -> Path | Url:
    """Returns the place that a word names.

    Example:
        location("s3://bucket/runs/demo").name  # "demo"
    """
    return Url(word.rstrip("/")) if is_url(word) else Path(word)


Location = Annotated[
    Path | Url,
    BeforeValidator(lambda value: location(value) if isinstance(value, str) and is_url(value) else value),
    PlainSerializer(str),
]
"""A path, or a URL: the type of a field."""


def fetch(pairs: Sequence[tuple[Url, Path]], advance: Callable[[int], None] = lambda _: None) -> None:
    """Downloads objects concurrently.

    Args:
        pairs: objects of one store, and the files to write.
        advance: called with the number of bytes that have arrived since its last call.

    Raises:
        UserError: an object is missing, or the store cannot be used. A full disk raises an `OSError`.
    """
    if not pairs:
        return
    for _, path in pairs:
        path.parent.mkdir(parents=True, exist_ok=True)
    url = pairs[0][0]
    with _reported(url, writes=True):
        paths = [one._path for one, _ in pairs], [str(path) for _, path in pairs]
        url._store.get(*paths, callback=_counting(advance))


def read_all(urls: Sequence[Url]) -> list[bytes | None]:
    """Reads small objects concurrently, those of one store after those of another.

    Args:
        urls: the objects.

    Returns:
        The content of each; None if it is missing.

    Raises:
        UserError: an object cannot be read.
    """
    contents: dict[Url, bytes | None] = {}
    for store in dict.fromkeys(url._store for url in urls):
        group = [url for url in urls if url._store is store]
        with _reported(group[0]):
            found = store.cat_ranges([url._path for url in group], None, None, on_error="return")
            for url, one in zip(group, found, strict=True):
                if isinstance(one, Exception) and not isinstance(one, FileNotFoundError):
                    raise one
                contents[url] = None if isinstance(one, Exception) else bytes(one)
    return [contents[url] for url in urls]


def _stored(url: Url, info: Mapping[str, Any]) -> Stored:
    if info["size"] is None:
        raise UserError(f"{url} cannot be used: its server does not say how large it is. Download it first.")
    stamp = next((str(info[name]) for name in STAMPS if info.get(name) is not None), "")
    return Stored(url, int(info["size"]), stamp)


def _counting(advance: Callable[[int], None]) -> Any:
    """Returns a callback of fsspec that passes on the bytes of each object."""
    from fsspec.callbacks import Callback

    class Bytes(Callback):
        def relative_update(self, inc: int = 1) -> None:
            advance(inc)

    class Objects(Callback):
        def branched(self, *_: Any, **__: Any) -> Any:
            return Bytes()

    return Objects()


@cache
def _store(protocol: str) -> Any:
    """Returns the file system of a protocol, one for all threads of this process."""
    url = f"{protocol}://"
    stores.silence_logs()
    try:
        import fsspec

        # Other stores pass unknown options on: over HTTP, every request would fail.
        sizes = {"default_block_size": BLOCK} if stores.of(url) else {}
        # Other processes write too, so listings are never remembered.
        return fsspec.filesystem(protocol, use_listings_cache=False, **sizes)
    except ImportError as error:
        known = stores.of(url)
        # fsspec's own error names the package of another store.
        how = f'pip install "highway-keras[{known.extra}]"' if known else f"{error}. Install it with pip"
        raise UserError(f"{url} needs a package that is not installed: {how}.") from error
    except ValueError as error:
        raise UserError(f"{url} has a protocol that fsspec does not open. Expected s3://, gs:// or another.") from error


@contextmanager
def _reported(url: Url, *, writes: bool = False) -> Iterator[None]:
    """Reports the errors of a store in one message.

    Args:
        url: the place.
        writes: whether a missing object is a missing bucket.
    """
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        # Each store has its own errors, which need not be those of files.
        if disk_is_full(error) or isinstance(error, FileExistsError):
            raise
        if isinstance(error, FileNotFoundError):
            if not writes:
                raise
            raise UserError(f"{url} cannot be used: there is no such bucket or object. Check the URL.") from error
        text = " ".join(str(error).split())[:300] or type(error).__name__
        known = stores.of(url.text)
        if stores.denies_access(error):
            named = f" ({known.credentials})" if known else ""
            raise UserError(
                f"{url} cannot be used with the credentials of this machine: {text}. Set those of the store{named}, or "
                "ask for access."
            ) from error
        named = f" ({known.address})" if known else ""
        raise UserError(
            f"{url} cannot be used: {text}. Check the network and the address of the store{named}."
        ) from error
