"""The user's own data at a URL: a copy in the cache, which is brought up to date whenever the data are read."""

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console

from pipelines.core.cached_copy import download, locked_copy, update
from pipelines.core.errors import UserError
from pipelines.core.sync import renamed
from pipelines.core.url import Stored, Url, is_url
from pipelines.data.own import tables
from pipelines.data.roots import TABLES, unpinned


@contextmanager
def local(data: str, console: Console) -> Iterator[str]:
    """Yields the local path of data: that of a copy for a URL, the word itself otherwise.

    While the block runs, messages name the URL, and other processes on this machine that read it wait.

    Args:
        data: the word after `--data`.
        console: where to print progress.

    Raises:
        UserError: there is nothing at the URL, the store cannot be used, or the disk is full.

    Example:
        with local("s3://bucket/photos", Console()) as path:
            read(path, None, Console())
    """
    if not is_url(data):
        yield data
        return
    word, _ = unpinned(data)
    url = Url(word)
    with locked_copy(url, console) as folder:
        found = url.files()
        if not found:
            raise UserError(f"there is nothing at {url}. Check the URL.")
        if found[0].url == url and url.suffix.lower() in TABLES:
            path = download(folder, url, found, console)
            with renamed(path.parent, url.parent):
                found += _images(url, tables.paths(path))
        path = update(folder, url, found, console)
        with renamed(path.parent, url.parent):
            yield str(path)


def _images(table: Url, paths: set[str]) -> list[Stored]:
    """Returns the images that a table refers to, relative to its own place; those that do not exist are left out."""
    names = {path if is_url(path) else posixpath.normpath(path) for path in paths}
    if outside := sorted(name for name in names if is_url(name) or name.startswith(("/", "../"))):
        raise UserError(
            f"{table} refers to {outside[0]}. Expected paths of images relative to the table, in its folder or below: "
            "move the images there, and change the paths."
        )
    if not names:
        return []
    # Not all of a bucket is listed for a few images in one folder. Paths of Windows are there with slashes, too.
    common = posixpath.commonpath([posixpath.dirname(name) for name in names if "\\" not in name])
    folder = table.parent / common if common else table.parent
    return [one for one in folder.files() if one.url.text.removeprefix(f"{table.parent}/") in names]
