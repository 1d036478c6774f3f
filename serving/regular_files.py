"""Reads regular files without ever blocking: a pipe, a device or a folder in place of one is an error."""

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
    """Opens a regular file for reading, following links.

    Args:
        path: the file.

    Returns:
        The open file.

    Raises:
        OSError: it cannot be opened, or is not a regular file.

    Example:
        with open_regular(folder / "model.onnx") as file:
            start = file.read(16)
    """
    # Before opening: a pipe would wait for a writer, and some devices act when they are opened.
    _check(path.stat())
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    file = os.fdopen(descriptor, "rb")
    try:
        # It may have been replaced in between.
        _check(os.fstat(descriptor))
    except OSError:
        file.close()
        raise
    return file


def size(path: Path) -> int:
    """Returns the size of a regular file in bytes.

    Raises:
        OSError: it is missing, or not a regular file.
    """
    found = path.stat()
    _check(found)
    return found.st_size


def read(path: Path, limit: int) -> bytes:
    """Reads a regular file.

    Args:
        path: the file.
        limit: its maximum size in bytes.

    Returns:
        Its content.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger.

    Example:
        read(folder / "manifest.json", 2**24)
    """
    with open_regular(path) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(errno.EFBIG, f"it has more than {limit:,} bytes")
    return content


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file")
