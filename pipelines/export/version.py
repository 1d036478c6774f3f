"""A version folder that is complete or absent."""

import errno
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.files import flush
from serving import manifest

# Begins the name of a version that is being written; no server takes it for a version.
ASIDE = ".export-"


@contextmanager
def new_version(model: Path) -> Iterator[tuple[int, Path]]:
    """A hidden folder that becomes the next version of a model when the block ends without an error.

    It lies in the model's own folder, hence in the same file system, and its name is no integer, so that no server
    takes it for a version. Processes that do this at the same time get different numbers. If the block raises, it is
    removed, and so are the folders that were made for it.

    Args:
        model: the folder of the model's versions, made if missing.

    Yields:
        The number of the new version, and the folder to write its files to.

    Raises:
        UserError: if the folder cannot be used.

    Example:
        with new_version(Path("models/demo")) as (version, folder):
            write_labels(folder, ("cat", "dog"))
    """
    if (model / manifest.NAME).exists() or (model / "saved_model.pb").exists():
        raise UserError(f"{model} is one version of a model. Name the folder of its versions: --to {model.parent}.")
    made = [folder for folder in (model, *model.parents) if not folder.exists()]
    done, aside = False, None
    try:
        version, aside = _claim(model)
        yield version, aside
        for path in (*aside.rglob("*"), aside):
            flush(path)
        _publish(aside, model / str(version))
        done = True
    finally:
        # KeyboardInterrupt comes through here too.
        if aside:
            shutil.rmtree(aside, ignore_errors=True)
        for folder in () if done else made:
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()


def _claim(model: Path) -> tuple[int, Path]:
    """Makes the hidden folder; its name has the number, so that no two processes have the same one.

    The number is one more than the largest beside it, whatever bears that.
    """
    try:
        while True:
            model.mkdir(parents=True, exist_ok=True)
            try:
                names = (re.fullmatch(rf"(?:{re.escape(ASIDE)})?([0-9]+)", entry.name) for entry in model.iterdir())
                version = max((int(name[1]) for name in names if name), default=0) + 1
                aside = model / f"{ASIDE}{version}"
                aside.mkdir()
            except (FileExistsError, FileNotFoundError):
                # Another was faster, or failed and took the model's folder with it.
                continue
            # Between the look and the claim another process may have published this very number.
            if not (model / str(version)).exists():
                return version, aside
            aside.rmdir()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise UserError(
            f"{model} cannot be used as a folder for versions: {error.strerror}. Name another with --to."
        ) from error


def _publish(aside: Path, version: Path) -> None:
    try:
        # Only an empty folder would be replaced by this: a version never is.
        aside.rename(version)
    except OSError as error:
        if not version.exists():
            raise
        raise UserError(
            f"{version} was made meanwhile by something else; it was left as it is. Run the command again."
        ) from error
    flush(version.parent)
