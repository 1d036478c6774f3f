"""A model in a bucket, which is downloaded once and kept in the cache folder of the user."""

import hashlib
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.files import user_cache, writing
from pipelines.core.url import Location, Url
from serving import manifest
from serving.errors import ServingError
from serving.stored_version import Prefix, description, download, versions


def local(model: Location) -> Path:
    """Returns a model on this machine: a path as it is; of a URL, its newest version in the cache.

    Args:
        model: a version folder, a model folder, whose newest version is used, or a net of the package.

    Raises:
        UserError: there is no version at the URL, a file of it is missing or damaged, or the store cannot be used.

    Example:
        open_model(local(Url("s3://bucket/models/digits")))
    """
    if isinstance(model, Path):
        return model
    version = _newest(model)
    described = description(version)
    digest = hashlib.sha256(described[manifest.NAME]).hexdigest()
    # The path has the names of the model and of the version, as those in a repository.
    name, number = version.url.split("/")[-2:]
    folder = user_cache() / "models" / digest[:32] / name / number
    if not folder.exists():
        _download(version, described, folder)
    return folder


def version_url(model: Url, folder: Path) -> Url:
    """Returns the URL of the version that a URL stood for, even if it has a newer one by now.

    Args:
        model: URL of a version folder, or of a model folder.
        folder: what `local` returned for it.
    """
    named = model.text.split("/")[-2:] == [*folder.parts[-2:]]
    return model if named else model / folder.name


def _newest(model: Url) -> Prefix:
    """Returns a version, or the newest version of a model."""
    sizes = model.below()
    if manifest.NAME in sizes:
        return _prefix(model, sizes)
    found = versions(sizes)
    if not found:
        raise UserError(
            f"{model} is not a model: expected a version folder with {manifest.NAME}, or a folder of versions (1, 2, "
            "...). Check the URL, or make one with `highway export RUN --to URL`."
        )
    newest = max(found)
    return _prefix(model / str(newest), found[newest])


def _prefix(version: Url, sizes: Mapping[str, int]) -> Prefix:
    def read_range(name: str, start: int, end: int) -> bytes:
        try:
            return (version / name).read_range(start, end)
        except FileNotFoundError as error:
            raise UserError(f"{version / name} has just been removed. Run the command again.") from error

    return Prefix(str(version), sizes, read_range)


def _download(version: Prefix, described: Mapping[str, bytes], folder: Path) -> None:
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        download(version, described, aside)
        # A rename replaces only an empty folder: another process may have been faster.
        try:
            aside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    except ServingError as error:
        raise UserError(str(error)) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
