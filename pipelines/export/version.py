"""A version folder that is complete or absent."""

import errno
import re
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pipelines.core.errors import UserError
from pipelines.core.files import flush, removing_new
from serving import manifest

# Prefix of a version that is being written; servers skip such names.
ASIDE = ".export-"


@contextmanager
def new_version(model: Path) -> Iterator[tuple[int, Path]]:
    """Yields a hidden folder that becomes the next version of a model when the block ends without an error.

    It is inside the model's own folder, hence in the same file system, and its name is not an integer, so that servers
    skip it. Concurrent processes get different numbers. If the block raises, the folder is removed, together with the
    parents that were created for it.

    Args:
        model: the folder of the model's versions, created if missing.

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
    with removing_new(model):
        version, aside = _claim(model)
        try:
            yield version, aside
            for path in (*aside.rglob("*"), aside):
                flush(path)
            _publish(aside, model / str(version))
        finally:
            # Cleans up after KeyboardInterrupt too.
            shutil.rmtree(aside, ignore_errors=True)


def _claim(model: Path) -> tuple[int, Path]:
    """Creates the hidden folder. Its name contains the version number, so that no two processes claim the same one.

    The number is one more than the largest number of a version or a claim in the model's folder; see `following`.
    """
    try:
        while True:
            model.mkdir(parents=True, exist_ok=True)
            try:
                names = (re.fullmatch(rf"(?:{re.escape(ASIDE)})?([0-9]+)", entry.name) for entry in model.iterdir())
                version = following(int(name[1]) for name in names if name)
                aside = model / f"{ASIDE}{version}"
                aside.mkdir()
            except (FileExistsError, FileNotFoundError):
                # Another process was faster, or it failed and removed the model's folder.
                continue
            # Another process may have published this number since the folder was listed.
            if not (model / str(version)).exists():
                return version, aside
            aside.rmdir()
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise
        raise UserError(
            f"{model} cannot be used as a folder for versions: {error.strerror}. Name another with --to."
        ) from error


def following(numbers: Iterable[int]) -> int:
    """Returns the number after the largest; numbers that are too large for a version, as of timestamps, are ignored."""
    return max((number for number in numbers if number < manifest.LARGEST_VERSION), default=0) + 1


def _publish(aside: Path, version: Path) -> None:
    try:
        # A rename replaces only an empty folder, so never a version.
        aside.rename(version)
    except OSError as error:
        if not version.exists():
            raise
        raise UserError(
            f"{version} was created meanwhile by another program and left as it is. Run the command again."
        ) from error
    flush(version.parent)
