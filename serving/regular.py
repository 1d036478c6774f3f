"""Regular files, read without ever waiting: a pipe, a device or a folder in the place of one is an error."""

import errno
import io
import os
import stat
from pathlib import Path

_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def open_regular(path: Path) -> io.BufferedReader:
    """Opens a regular file for reading; links are followed.

    Args:
        path: the file.

    Returns:
        The open file.

    Raises:
        OSError: it cannot be opened, or is no regular file.

    Example:
        with open_regular(folder / "model.onnx") as file:
            start = file.read(16)
    """
    # Before it is opened: opening a pipe waits for a writer, and opening some devices does something.
    _check(path.stat())
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    file = os.fdopen(descriptor, "rb")
    try:
        # Something else may have taken its place in between.
        _check(os.fstat(descriptor))
    except OSError:
        file.close()
        raise
    return file


def size(path: Path) -> int:
    """Bytes of a regular file.

    Raises:
        OSError: it is missing, or no regular file.
    """
    found = path.stat()
    _check(found)
    return found.st_size


def read(path: Path, most: int) -> bytes:
    """The content of a regular file.

    Args:
        path: the file.
        most: bytes that it may have.

    Returns:
        Its bytes.

    Raises:
        OSError: it cannot be read, is no regular file, or has more bytes.

    Example:
        read(folder / "manifest.json", 2**24)
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes")
    return content


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
