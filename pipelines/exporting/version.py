"""A version folder that is complete or absent."""

import errno
import re
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.errors import UserError
from pipelines.files import flush
from serving import manifest


@contextmanager
def new_version(model: Path) -> Iterator[tuple[int, Path]]:
    """A hidden folder that becomes the next version of a model when the block ends without an error.

    It lies in the model's own folder, hence in the same file system, and its name is no integer, so that no server
    takes it for a version. If the block raises, it is removed, and so are the folders that were made for it.

    Args:
        model: the folder of the model's versions, made if missing.

    Yields:
        The number of the new version, and the folder to write its files to.

    Raises:
        UserError: if the folder cannot be used, or another process took the number meanwhile.

    Example:
        with new_version(Path("models/demo")) as (version, folder):
            write_labels(folder, ("cat", "dog"))
    """
    if (model / manifest.NAME).exists() or (model / "saved_model.pb").exists():
        raise UserError(f"{model} is one version of a model. Name the folder of its versions: --to {model.parent}.")
    made = [folder for folder in (model, *model.parents) if not folder.exists()]
    aside = model / f".export-{uuid.uuid4().hex[:12]}"
    done = False
    try:
        version = _make(aside)
        yield version, aside
        for path in (*aside.rglob("*"), aside):
            flush(path)
        _publish(aside, model / str(version))
        done = True
    finally:
        # KeyboardInterrupt comes through here too.
        shutil.rmtree(aside, ignore_errors=True)
        for folder in () if done else made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _make(aside: Path) -> int:
    """Makes the hidden folder; the version is one more than the largest number beside it, whatever bears that."""
    model = aside.parent
    try:
        aside.mkdir(parents=True)
        taken = [int(entry.name) for entry in model.iterdir() if re.fullmatch("[0-9]+", entry.name)]
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise UserError(
            f"{model} cannot be used as a folder for versions: {error.strerror}. Name another with --to."
        ) from error
    return max(taken, default=0) + 1


def _publish(aside: Path, version: Path) -> None:
    try:
        # Only an empty folder would be replaced by this: a version never is.
        aside.rename(version)
    except OSError as error:
        if not version.exists():
            raise
        raise UserError(
            f"{version} was made by another process meanwhile; it was left as it is. Run the command again."
        ) from error
    flush(version.parent)
