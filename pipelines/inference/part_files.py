"""Lists, reads, writes, moves and removes the files of a result, on a disk or in a bucket.

In a bucket, an object is never renamed but copied, by the store itself, and no process can lock it.
"""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from pipelines.core.files import file_lock, flush, remove_leftovers, replacing
from pipelines.core.url import Location, Url

SUFFIX = ".parquet"


def parts(folder: Location) -> list[Location]:
    """Returns the complete parts in a folder, in order: files whose names are numbers."""
    if isinstance(folder, Url):
        found: list[Location] = [one.url for one in folder.files() if one.url.parent == folder]
    else:
        found = [*folder.glob(f"[0-9]*{SUFFIX}")]
    # More than eight digits would be out of order as text.
    return sorted((one for one in found if one.suffix == SUFFIX and stem(one).isdecimal()), key=first_row)


def first_row(part: Location) -> int:
    """Returns the number of the first row of a part."""
    return int(stem(part))


def stem(place: Location) -> str:
    """Returns the name of a file without its suffix."""
    return place.name.removesuffix(place.suffix)


def opened(place: Location) -> "AbstractContextManager[Path | BinaryIO]":
    """Opens a file for pyarrow, which reads those of a disk itself."""
    return place.open() if isinstance(place, Url) else nullcontext(place)


@contextmanager
def written(place: Location) -> Iterator[Path]:
    """Yields the temporary file to write; the file itself appears when the block ends without an error."""
    if isinstance(place, Path):
        with replacing(place) as aside:
            yield aside
        return
    with tempfile.TemporaryDirectory(prefix="highway-") as folder:
        path = Path(folder) / place.name
        yield path
        place.put(path)


def move(place: Location, to: Location) -> None:
    """Renames a file, replacing any file with the new name."""
    if isinstance(place, Path):
        assert isinstance(to, Path)
        place.replace(to)
        flush(to.parent)
        return
    assert isinstance(to, Url)
    place.copy(to)
    place.unlink()


def move_parts(folder: Location, to: Location) -> None:
    """Moves the parts of a folder to another folder, which must be new; parts in a bucket are copied."""
    if isinstance(folder, Path):
        assert isinstance(to, Path)
        remove_leftovers(folder)
        folder.replace(to)
        flush(to.parent)
        return
    assert isinstance(to, Url)
    for part in parts(folder):
        assert isinstance(part, Url)
        part.copy(to / part.name)


def remove(folder: Location) -> None:
    """Removes a folder, if there is one."""
    if isinstance(folder, Url):
        folder.rmtree()
    else:
        shutil.rmtree(folder, ignore_errors=True)


def lock(place: Location, refusal: str) -> AbstractContextManager[None]:
    """Locks a file for this process; see `pipelines.core.files.file_lock`. In a bucket, there are no locks."""
    return file_lock(place, refusal, create=True) if isinstance(place, Path) else nullcontext()
