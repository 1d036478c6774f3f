"""File locks, CSV, ends of tar files, and atomic writes (to a temporary name, flushed to disk, then renamed)."""

import csv
import fcntl
import io
import os
import shutil
import socket
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

from pipelines.core.errors import UserError, disk_is_full

# Formats of figures.
FIGURES = (".png", ".pdf", ".svg")
# File in a temporary folder that is locked while it is used.
LOCK = "lock"


def check_figure(path: Path, option: str) -> None:
    """Refuses a figure whose format is not in `FIGURES`.

    Args:
        path: the figure.
        option: the option that names it, for the message.

    Raises:
        UserError: its suffix is another.
    """
    if path.suffix not in FIGURES:
        *others, last = FIGURES
        raise UserError(f"{option} must end in {', '.join(others)} or {last}. Received: {path}.")


@contextmanager
def replacing(path: Path, *, before: Path | None = None) -> Iterator[Path]:
    """Replaces a file when the block ends without an error.

    The temporary file keeps the suffix of `path`, from which Keras and matplotlib infer the format.

    Args:
        path: the file to write or replace.
        before: new path for the file that is replaced, in the same folder; None deletes that file. A process that is
            killed between the two renames leaves it there, and nothing at `path`.

    Yields:
        The temporary path to write to. If the block raises, it is removed and `path` stays as it was.

    Raises:
        UserError: the folder is not writable. A full disk raises an `OSError`.

    Example:
        with replacing(run / "model.keras") as aside:
            model.save(aside)
    """
    with _aside(path) as aside:
        yield aside
        _complete(aside)
        if before and path.exists():
            path.replace(before)
        aside.replace(path)
        flush(path.parent)


@contextmanager
def _aside(path: Path) -> Iterator[Path]:
    """Yields a temporary file next to another one; removes it at the end, unless it was renamed."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    aside = Path(name)
    try:
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _complete(aside: Path) -> None:
    flush(aside)
    aside.chmod(0o666 & ~_umask())


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns an `OSError` in the block, unless the disk is full, into a user error about `path`.

    Raises:
        UserError: the folder cannot be created or is not writable.
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
    """Replaces a folder and its content when the block ends without an error.

    Args:
        path: the folder to create or replace. A process that is killed between the two renames leaves the old one
            under a temporary name, and nothing at `path`.

    Yields:
        The temporary folder to write to. If the block raises, it is removed and `path` stays as it was.

    Example:
        with replacing_folder(run / "analysis") as aside:
            write_text(aside / "analysis.md", text)

    Raises:
        UserError: the folder cannot be created or replaced. A full disk raises an `OSError`.
    """
    aside = folder_beside(path)
    try:
        new, before = aside / "new", aside / "before"
        new.mkdir()
        yield new
        for written in (*new.rglob("*"), new):
            flush(written)
        with writing(path):
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


@contextmanager
def removing_new(path: Path) -> Iterator[None]:
    """Removes a folder and those above it if the block creates them and leaves them empty.

    Args:
        path: the folder.

    Example:
        with removing_new(study):
            write_text(study / "study.json", plan)
            check(plan)
    """
    created = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        yield
    finally:
        for folder in created:
            with suppress(OSError):  # It is not empty, or another process has removed it.
                folder.rmdir()


def check_writable(path: Path) -> None:
    """Checks that files can be written to a folder, before anything is computed.

    Args:
        path: the folder; if it is missing, the nearest folder above it is checked, and nothing is created.

    Raises:
        UserError: the folder is not writable, or it is a file.

    Example:
        check_writable(run / "figures")
    """
    place = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
    problem = "" if os.access(place, os.W_OK | os.X_OK) else "is read-only"
    if not place.is_dir():
        problem = "is a file"
    if problem:
        raise UserError(f"{path} cannot be written: {place} {problem}. Name another folder.")


def check_replaceable(path: Path) -> None:
    """Checks that `replacing_folder` will be able to write, before anything is computed; leaves nothing behind.

    Args:
        path: the folder to create or replace.

    Raises:
        UserError: the folder above it cannot be written to, or the folder itself is a mount point.
    """
    if path.parent.exists():
        folder_beside(path).rmdir()
    else:
        check_writable(path.parent)
    if os.path.ismount(path):
        raise UserError(f"{path} is a mount point, which cannot be replaced. Name a folder in it.")


def folder_beside(path: Path) -> Path:
    """Creates an empty folder for temporary files, whose name no other process has, not even one on another machine."""
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=path.parent, prefix=f".{path.name}-"))


def write_text(path: Path, text: str) -> None:
    """Writes `text` to `path` atomically."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")


def create_text(path: Path, text: str) -> None:
    """Writes `text` to a new file atomically: of several processes, only one creates it.

    Raises:
        FileExistsError: the file exists already; it is unchanged.
    """
    with _aside(path) as aside:
        aside.write_text(text, encoding="utf-8")
        _complete(aside)
        try:
            # Unlike a rename, a link never replaces a file.
            os.link(aside, path)
        except FileExistsError:
            raise
        except OSError:
            # The file system has no hard links, like exFAT.
            aside.replace(path)
        flush(path.parent)


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Formats rows as CSV; None is an empty cell.

    Example:
        csv_text([("net", "seed"), ("plain", 0)])
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


@contextmanager
def file_lock(
    path: Path, refusal: str, *, create: bool = False, wait: Callable[[str], None] | None = None
) -> Iterator[None]:
    """Locks a file for this process until the block ends or the process dies.

    Args:
        path: a file that is never replaced; it can stand for its folder.
        refusal: error message if another process holds the lock.
        create: whether to create the file and its folder if they are missing. The holder of the lock may remove them.
        wait: waits for the other process, after this is called with the refusal; None raises it.

    Raises:
        UserError: another process holds the lock, or the folder cannot be created.

    Example:
        with file_lock(folder / "config.json", f"another process writes to {folder}. Wait for it."):
            ...
    """
    handle = _locked(path, refusal, create, wait)
    try:
        yield
    finally:
        os.close(handle)


def _locked(path: Path, refusal: str, create: bool, wait: Callable[[str], None] | None) -> int:
    while True:
        if create:
            with writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
        try:
            handle = os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
        except FileNotFoundError:
            if not create:
                raise
            continue  # Its folder has just been removed.
        except OSError:
            with writing(path):
                raise
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            if wait is None:
                os.close(handle)
                raise UserError(refusal) from error
            wait(refusal)
            fcntl.flock(handle, fcntl.LOCK_EX)
        except OSError as error:
            # Such as NFS or Lustre without locks.
            os.close(handle)
            raise UserError(
                f"the file system of {path} cannot lock files ({error.strerror}). Without locks, two commands could "
                "write the same ones. Choose a folder on another file system, or have it mounted with locks."
            ) from error
        if os.fstat(handle).st_nlink:
            return handle
        os.close(handle)  # The file was removed before the lock was taken.


@contextmanager
def temporary_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Yields a temporary folder, and removes it at the end, along with those of killed processes on this machine.

    A process that lives has locked a file in its folder. Other machines may not see the lock on a shared file system.

    Args:
        parent: the folder that holds it.
        prefix: start of its name.

    Raises:
        OSError: the folder cannot be created.

    Example:
        with temporary_folder(root, ".preparing-") as aside:
            prepare(aside)
    """
    for left in parent.glob(f"{prefix}*"):
        with suppress(UserError, OSError):
            if (left / LOCK).read_text(encoding="utf-8") == socket.gethostname():
                with file_lock(left / LOCK, f"{left} is in use"):
                    shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=prefix) as name, ExitStack() as lock:
        folder = Path(name)
        # On a file system without locks, the folder stays if this process is killed.
        with suppress(UserError):
            # A process that has just taken it for a killed one's may be removing it.
            lock.enter_context(file_lock(folder / LOCK, "", create=True, wait=lambda _: None))
            (folder / LOCK).write_text(socket.gethostname(), encoding="utf-8")
        yield folder


def user_cache() -> Path:
    """Returns the cache folder of this program, which may be missing."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "highway-keras"


def remove_leftovers(folder: Path) -> None:
    """Removes temporary files that `replacing` left behind when its process was killed.

    Args:
        folder: a folder that no process is writing to.
    """
    for path in folder.glob(".*-????????.*"):
        # A process that is being killed may have renamed the file just now.
        path.unlink(missing_ok=True)


def has_more(archive: tarfile.TarFile) -> bool:
    """Returns whether something follows the end of a tar file, as if `cat` had joined several; zeros do not count.

    Args:
        archive: the file, whose members have been read.
    """
    file = archive.fileobj
    assert file, "the archive is open"
    file.seek(archive.offset)
    return any(part.strip(b"\0") for part in iter(partial(file.read, 2**20), b""))


def flush(path: Path) -> None:
    """Flushes a file, or the renames in a folder, to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    # Setting the mask is the only way to read it.
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
