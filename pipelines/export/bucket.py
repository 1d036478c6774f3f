"""Export of versions to a model's folder in a bucket, by way of a local folder.

In a bucket, a version is a folder whose name is an integer, with a manifest, which is written last: a reader that
finds it finds all other files. The version is written and checked on this machine first.
"""

import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from pipelines.core.errors import UserError
from pipelines.core.sync import renamed
from pipelines.core.url import Location, Url
from pipelines.export.version import ASIDE, following
from serving import manifest
from serving.stored_version import versions

NUMBER = re.compile(rf"(?:{re.escape(ASIDE)})?([0-9]+)(?:/|$)")
"""Start of the path of a version, complete or not, or of the claim of one; relative to the model's folder."""


class Destination(NamedTuple):
    """The folder that a version is exported to, and the function that uploads it."""

    folder: Path | None
    """The folder of the model's versions; of a URL, a local one that shows what `pipelines.export.export` looks at: the
    versions, and the manifest of the newest."""
    publish: Callable[[], None]
    """Uploads the version that was exported there; does nothing for a path."""


@contextmanager
def exported_to(model: Location | None) -> Iterator[Destination]:
    """Yields the destination of a version.

    Args:
        model: the folder of the model's versions; None for the default.

    Raises:
        UserError: the URL is a whole bucket, the store cannot be used, or another program has written the version.

    Example:
        with exported_to(Url("s3://bucket/models/digits")) as to:
            export(run, to.folder)
            to.publish()
    """
    if not isinstance(model, Url):
        yield Destination(model, lambda: None)
        return
    model.refuse_bucket()
    with tempfile.TemporaryDirectory(prefix="highway-") as root, renamed(Path(root), model.parent):
        local = Path(root) / model.name
        number = _claim(model)
        try:
            _show(model, number, local)
            yield Destination(local, lambda: _publish(local / str(number), model / str(number)))
        finally:
            # If this process is killed, the claim stays, and its number is never used.
            with suppress(UserError):
                (model / f"{ASIDE}{number}").unlink()


def _claim(model: Url) -> int:
    """Claims the next number: one more than the largest of a version, complete or not, or of a claim."""
    while True:
        names = (NUMBER.match(name) for name in model.below())
        number = following(int(name[1]) for name in names if name)
        claim = model / f"{ASIDE}{number}"
        try:
            claim.create()
        except FileExistsError:
            continue
        # Another process may have published this number, and given up its claim, since the objects were listed.
        if not (model / str(number)).exists():
            return number
        claim.unlink()


def _show(model: Url, number: int, local: Path) -> None:
    """Makes a local folder look like the model's, so that the next version in it has the claimed number."""
    local.mkdir()
    names = model.below()
    for path in map(Path, names):
        if path.name == manifest.NAME:
            (local / path).parent.mkdir(parents=True, exist_ok=True)
    if manifest.NAME in names:
        (local / manifest.NAME).touch()
    if found := versions(names):
        newest = f"{max(found)}/{manifest.NAME}"
        (local / newest).write_bytes((model / newest).read_bytes())
    (local / f"{ASIDE}{number - 1}").mkdir()


def _publish(version: Path, url: Url) -> None:
    paths = [path for path in sorted(version.rglob("*")) if path.is_file()]
    for path in paths:
        if path.name != manifest.NAME:
            (url / path.relative_to(version).as_posix()).put(path)
    try:
        (url / manifest.NAME).create((version / manifest.NAME).read_bytes())
    except FileExistsError as error:
        raise UserError(
            f"{url} was created meanwhile by another program and left as it is. Run the command again."
        ) from error
