"""A model in a bucket, which is downloaded once and kept in the cache folder of the user."""

import hashlib
import shutil
import tempfile
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.files import user_cache, writing
from pipelines.core.url import Location, Url, fetch
from serving import files, manifest, signature
from serving.errors import ServingError


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
    digest = hashlib.sha256((version / manifest.NAME).read_bytes()).hexdigest()
    # The path has the names of the model and of the version, as those in a repository.
    folder = user_cache() / "models" / digest[:32] / version.parent.name / version.name
    if not folder.exists():
        _download(version, folder)
    return folder


def _newest(model: Url) -> Url:
    """Returns a version, or the newest version of a model; a version is one once it has its manifest."""
    if (model / manifest.NAME).is_file():
        return model
    folders = [one.url.parent for one in model.files() if one.url.name == manifest.NAME]
    versions = [one for one in folders if one.parent == model and one.name.isdecimal()]
    if not versions:
        raise UserError(
            f"{model} is no model: expected a version folder with {manifest.NAME}, or a folder of versions (1, 2, "
            "...). Check the URL, or make one with `highway export RUN --to URL`."
        )
    return max(versions, key=lambda one: int(one.name))


def _download(version: Url, folder: Path) -> None:
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        aside = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}-"))
    try:
        fetch([(version / manifest.NAME, aside / manifest.NAME)])
        content = manifest.read(aside)
        names = [*content.files]
        if (version / signature.NAME).exists():
            names.append(signature.NAME)
        fetch([(version / name, aside / name) for name in names])
        files.verify(aside, content)
        # A rename replaces only an empty folder: another process may have been faster.
        try:
            aside.rename(folder)
        except OSError:
            if not folder.exists():
                raise
    except ServingError as error:
        raise UserError(f"{version}: {error}".replace(str(aside), str(version))) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
