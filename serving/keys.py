"""Keys of clients: their sources, their names, and the rate of requests that each may send."""

import hashlib
import logging
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path

from serving import regular_files
from serving.errors import ServingError

# Name of the only key if it does not come from a file.
ONLY = "default"
# Maximum size of a file of keys, in bytes.
_SIZE = 2**20
_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
log = logging.getLogger(__name__)


class KeysError(ServingError):
    """A key is invalid, or a file of keys is missing, or a line of it is invalid."""


class _UnreadError(KeysError):
    """The file of keys cannot be read at the moment."""


class Keys:
    """Keys that clients may send.

    A file has one key per line, as `NAME KEY`, and may have comments after `#` at the start of a line. Several keys may
    have the same name: to replace one, add the new key, change the clients, and remove the old key. The file is read
    again when it changes; if it has become invalid, the keys before that stay valid.

    Args:
        only: one key, without a file.
        path: the file.

    Raises:
        KeysError: the key is empty or not UTF-8, or the file is missing or invalid.

    Example:
        keys = Keys("secret")
        assert keys.find(b"secret") == "default"
        assert keys.find(b"wrong") is None
    """

    def __init__(self, only: str | None = None, path: Path | None = None) -> None:
        self._path = path
        # A keyed digest: how long a look-up takes reveals nothing about the keys.
        self._secret = secrets.token_bytes(32)
        self._only = {} if only is None else {self._digest(_encoded(only)): ONLY}
        self._names, self._stamp = self._only, path and _stamp(path)
        # State of a file that could not be read, which the log already has.
        self._unread: object = None
        if path is not None:
            self._names = self._only | self._read(path)

    def __bool__(self) -> bool:
        """Returns whether clients must send a key."""
        return bool(self._names)

    def find(self, sent: bytes) -> str | None:
        """Returns the name of a key, or None if it is not valid."""
        return self._names.get(self._digest(sent))

    def refresh(self) -> None:
        """Reads the file again if it has changed."""
        if self._path is None or (stamp := _stamp(self._path)) == self._stamp:
            return
        try:
            found = self._only | self._read(self._path)
        except KeysError as error:
            # A file that cannot be read is tried again at the next call: a key may have been removed from it.
            unread = isinstance(error, _UnreadError)
            if not unread or stamp != self._unread:
                log.error("keys not changed", extra={"why": str(error)})
            self._stamp, self._unread = (self._stamp, stamp) if unread else (stamp, None)
            return
        self._stamp, self._unread = stamp, None
        names = sorted(set(found.values()))
        log.info("keys changed", extra={"names": names, "keys": len(found)})
        self._names = found

    def _digest(self, key: bytes) -> bytes:
        return hashlib.blake2b(key, key=self._secret, digest_size=32).digest()

    def _read(self, path: Path) -> dict[bytes, str]:
        try:
            # Editors on Windows start a file with a byte order mark.
            lines = regular_files.read(path, _SIZE).decode("utf-8-sig").splitlines()
        except OSError as error:
            raise _UnreadError(
                f"{path}, the file of keys, cannot be read: {error.strerror}. Check its path and permissions."
            ) from None
        except UnicodeError:
            raise KeysError(f"{path}, the file of keys, is not UTF-8 text. Save it as UTF-8.") from None
        found: dict[bytes, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            # Messages never quote the line, which has a key.
            name, _, key = line.partition(" ")
            if not _NAME.fullmatch(name) or not key.strip():
                raise KeysError(f"line {number} of {path} is not of the form `NAME KEY`.")
            digest = self._digest(key.strip().encode())
            if digest in found:
                raise KeysError(
                    f"line {number} of {path} repeats the key of {found[digest]!r}. Give each client its own."
                )
            found[digest] = name
        if not found:
            raise KeysError(f"{path} has no keys. Expected one per line, as `NAME KEY`.")
        return found


class RateLimit:
    """A token bucket for each key.

    Args:
        rate: requests per second on average; as many, but at least one, may come at once.
        clock: returns the time in seconds.

    Example:
        limit = RateLimit(1.0)
        assert limit.wait("alice") == 0
        assert limit.wait("alice") > 0
    """

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self._clock = rate, clock
        self._burst = max(rate, 1.0)
        # Requests that are left, and when they were counted, by the name of the key.
        self._left: dict[str, tuple[float, float]] = {}

    def wait(self, name: str) -> float:
        """Counts a request, unless it is one too many.

        Args:
            name: name of the key.

        Returns:
            0, or the seconds until a request is accepted.
        """
        now = self._clock()
        left, since = self._left.get(name, (self._burst, now))
        left = min(left + (now - since) * self.rate, self._burst)
        accepted = left >= 1
        self._left[name] = left - accepted, now
        return 0.0 if accepted else (1 - left) / self.rate


def _encoded(key: str) -> bytes:
    """Returns a key as bytes, without the newline at the end of a variable that was set from a file."""
    try:
        found = key.strip().encode()
    except UnicodeEncodeError:
        raise KeysError("the key that clients must send is not UTF-8 text. Set HIGHWAY_API_KEY to another.") from None
    if not found:
        raise KeysError("the key that clients must send is empty. Set HIGHWAY_API_KEY to one, or leave it out.")
    return found


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino
