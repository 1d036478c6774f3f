"""Files that are complete or absent: written aside, flushed to disk, then renamed; and held by one process alone."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.errors import UserError, disk_is_full


@contextmanager
def replacing(path: Path, *, before: Path | None = None) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error.

    The temporary file keeps the suffix of `path`, because Keras and matplotlib choose the format by it.

    Args:
        path: the file to write or replace.
        before: in the same folder, where the file that is replaced goes; None does not keep it. A process that is
            killed between the two renames leaves it there, and nothing at `path`.

    Yields:
        The path to write to. If the block raises, it is removed and `path` stays as it was.

    Raises:
        UserError: nothing can be written there, and not because the disk is full.

    Example:
        with replacing(run / "model.keras") as aside:
            model.save(aside)
    """
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
        flush(aside)
        aside.chmod(0o666 & ~_umask())
        if before and path.exists():
            path.replace(before)
        aside.replace(path)
        flush(path.parent)
    finally:
        aside.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns the errors of a block that begins to write at `path` into a user's, short of a full disk.

    Raises:
        UserError: the folder cannot be made, or nothing may be written there.
    """
    try:
        yield
    except OSError as error:
        if disk_is_full(error):
            raise
        raise UserError(
            f"{path} cannot be written: {error.strerror}. Name another folder, or change its permissions."
        ) from error


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """A temporary folder beside `path` that takes its place when the block ends without an error.

    Args:
        path: the folder to make or replace, with all that is in it. A process that is killed between the two renames
            leaves the one before under its temporary name, and nothing at `path`.

    Yields:
        The folder to write to. If the block raises, it is removed and `path` stays as it was.

    Example:
        with replacing_folder(run / "analysis") as aside:
            write_text(aside / "analysis.md", text)
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))
    try:
        new, before = aside / "new", aside / "before"
        new.mkdir()
        yield new
        for written in (*new.rglob("*"), new):
            flush(written)
        if path.exists():
            path.rename(before)
        try:
            new.rename(path)
        except BaseException:
            if before.exists():
                before.rename(path)
            raise
        flush(path.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path`, complete or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


@contextmanager
def held(path: Path, refusal: str) -> Iterator[None]:
    """Holds a file for this process, until the block ends or the process dies.

    Args:
        path: a file that is written once and never replaced; it can stand for the folder that it lies in.
        refusal: what is said where another process holds it.

    Raises:
        UserError: another process holds it.

    Example:
        with held(folder / "config.json", f"another process writes to {folder}. Wait for it."):
            ...
    """
    handle = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UserError(refusal) from error
        yield
    finally:
        os.close(handle)


def user_cache() -> Path:
    """The folder for what this program can make anew; it may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highway-keras"


def remove_leftovers(folder: Path) -> None:
    """Removes the temporary files that `replacing` could not, because its process was killed.

    Args:
        folder: that nobody is writing to.
    """
    for path in folder.glob(".*-????????.*"):
        # A process that is being killed may just have put it in its place.
        path.unlink(missing_ok=True)


def flush(path: Path) -> None:
    """Makes sure that what was written to a file, or renamed in a folder, is on disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    # The mask can only be read by setting it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
