"""Local copies of the objects at a URL, in the user's cache; only new and changed objects are downloaded.

lock             held by the process that uses the copy
complete.jsonl   name and stamp of every object that has arrived, one a line
arriving-*/      objects that are being downloaded
files/           the copy
"""

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn

from pipelines.core.console import TimeLeftColumn, counted, say
from pipelines.core.errors import UserError, disk_is_full
from pipelines.core.files import file_lock, user_cache, write_text
from pipelines.core.url import Stored, Url, fetch

COMPLETE = "complete.jsonl"
FILES = "files"
ARRIVING = "arriving-"
# Objects in a batch of downloads, and their bytes: a kill loses one batch at most.
COUNT, BYTES = 512, 2**28


@contextmanager
def locked_copy(url: Url, console: Console) -> Iterator[Path]:
    """Locks the local copy of a URL until the block ends; waits while another process on this machine uses it.

    Its name does not depend on the address of the store: objects in another store have other stamps.

    Args:
        url: the URL.
        console: where to print that it waits.

    Yields:
        The folder of the copy, for `download` and `update`.

    Raises:
        UserError: the cache is not writable.
    """
    folder = user_cache() / "urls" / hashlib.sha256(url.text.encode()).hexdigest()[:32]
    waits = f"waiting for another process on this machine that reads {url}"
    with file_lock(folder / "lock", waits, create=True, wait=lambda text: say(console, text)):
        for left in folder.glob(f"{ARRIVING}*"):
            shutil.rmtree(left)
        yield folder


def update(folder: Path, url: Url, objects: Sequence[Stored], console: Console) -> Path:
    """Makes a copy complete: downloads new and changed objects, and removes files whose objects are gone.

    Args:
        folder: the folder that `locked_copy` yielded.
        url: the URL.
        objects: all objects to have, at the URL or next to it.
        console: where to print progress.

    Returns:
        The path of the copy, whose folder stands for the parent of the URL.

    Raises:
        UserError: the store cannot be used, an object cannot be a file, or the disk is full. Complete objects are kept.

    Example:
        with locked_copy(photos, console) as folder:
            path = update(folder, photos, photos.files(), console)
    """
    files = folder / FILES
    wanted = {files / _name(one, url) for one in objects}
    known = _complete(folder)
    kept = {name: stamp for name, stamp in known.items() if files / name in wanted}
    if len(kept) < len(known):
        write_text(folder / COMPLETE, "".join(map(_line, kept, kept.values())))
    # The deepest first, so that folders are empty when it is their turn.
    for path in sorted(files.rglob("*"), reverse=True):
        if path.is_dir():
            with suppress(OSError):
                path.rmdir()
        elif path not in wanted:
            path.unlink()
    return download(folder, url, objects, console)


def download(folder: Path, url: Url, objects: Sequence[Stored], console: Console) -> Path:
    """Downloads the objects that are new or changed, and removes nothing; otherwise as `update`."""
    known, files = _complete(folder), folder / FILES
    missing = [one for one in objects if not _is_there(one, files, _name(one, url), known)]
    files.mkdir(parents=True, exist_ok=True)
    if not missing:
        return files / url.name
    size = sum(one.size for one in missing)
    say(console, f"downloading {counted(len(missing), 'object')} ({decimal(size)}) of {url}")
    columns = (TextColumn("downloading"), BarColumn(), DownloadColumn(), TimeLeftColumn())
    try:
        with (
            Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar,
            (folder / COMPLETE).open("a", encoding="utf-8") as complete,
        ):
            task = bar.add_task("downloading", total=size)
            for part in _parts(missing):
                with tempfile.TemporaryDirectory(dir=folder, prefix=ARRIVING) as arriving:
                    pairs = [(one.url, Path(arriving) / str(number)) for number, one in enumerate(part)]
                    fetch(pairs, lambda count: bar.advance(task, count))
                    for one, (_, path) in zip(part, pairs, strict=True):
                        _keep(one, path, files, _name(one, url), complete)
    except OSError as error:
        trouble = disk_is_full(error) or error.strerror or str(error)
        raise UserError(
            f"{url} cannot be copied to {files}: {trouble}. Free some space, or set XDG_CACHE_HOME to a folder on "
            "another disk, and repeat the command."
        ) from error
    return files / url.name


def _keep(one: Stored, path: Path, files: Path, name: str, complete: TextIO) -> None:
    """Moves a file that has arrived to its place."""
    if path.stat().st_size != one.size:
        raise UserError(
            f"{one.url} had {one.size:,} bytes, but {path.stat().st_size:,} were downloaded: it has changed in the "
            "meantime. Repeat the command."
        )
    (files / name).parent.mkdir(parents=True, exist_ok=True)
    path.replace(files / name)
    complete.write(_line(name, one.stamp))
    complete.flush()


def _name(one: Stored, url: Url) -> str:
    name = one.url.text.removeprefix(f"{url.parent}/")
    if any(part in ("", ".", "..") for part in name.split("/")):
        raise UserError(f"{one.url} cannot be a file: its name has the part '.' or '..', or an empty one. Rename it.")
    return name


def _is_there(one: Stored, files: Path, name: str, known: dict[str, str]) -> bool:
    # Without a stamp, nothing shows whether the object has changed.
    same = bool(one.stamp) and known.get(name) == one.stamp
    # A file that the user has changed must not be taken for the object.
    return same and (files / name).is_file() and (files / name).stat().st_size == one.size


def _line(name: str, stamp: str) -> str:
    return json.dumps([name, stamp]) + "\n"


def _complete(folder: Path) -> dict[str, str]:
    """Returns the stamps of the objects that have arrived, by name."""
    try:
        lines = (folder / COMPLETE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return {}
    known = {}
    for line in lines:
        # A kill may have cut one.
        with suppress(ValueError):
            name, stamp = json.loads(line)
            known[name] = stamp
    return known


def _parts(objects: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Splits objects into batches of downloads."""
    part: list[Stored] = []
    size = 0
    for one in objects:
        if part and (len(part) == COUNT or size + one.size > BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += one.size
    yield part
