"""Stores the user's own data as a TFDS data set, complete or not at all."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from pipelines.core.console import TimeLeftColumn
from pipelines.core.errors import UserError, disk_is_full
from pipelines.core.files import temporary_folder, write_text
from pipelines.data.catalog import silence
from pipelines.data.own.item import Split
from pipelines.data.roots import INFO, VERSION, own_folder

# Description of the origin of a data set, next to the files of TFDS.
SOURCE = "source.json"


def store(
    source: str,
    name: str,
    digest: str,
    features: Mapping[str, Any],
    examples: Callable[[Callable[[int], None]], Mapping[Split, Any]],
    *,
    total: int,
    files: Mapping[str, str],
    console: Console,
) -> Path:
    """Writes a data set into the user's cache, in a folder that is named after its content, unless it exists.

    Args:
        source: path of the data, for messages.
        name: name of the data set.
        digest: digest of everything that its files depend on.
        features: its features by name.
        examples: returns keys and examples by split, given the function that advances the progress bar.
        total: number of examples.
        files: texts of further files by name.
        console: where to print progress.

    Returns:
        The folder of the data set.

    Raises:
        UserError: the disk is full, or the cache is not writable.
    """
    target = own_folder(digest, name)
    if (target / INFO).is_file():
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            temporary_folder(target.parent, ".preparing-") as aside,
            progress_bar(console, f"preparing {name}", total) as advance,
            silence(),
        ):
            builder = tfds.dataset_builders.AdhocBuilder(
                name=name,
                version=VERSION,
                features=tfds.features.FeaturesDict(dict(features)),
                split_datasets=examples(advance),
                data_dir=aside,
                description=f"Prepared from {source}.",
            )
            builder.download_and_prepare()
            for file, text in files.items():
                write_text(Path(builder.data_dir) / file, text)
            _place(Path(builder.data_dir), target, aside)
    except OSError as error:
        trouble = disk_is_full(error) or error.strerror or str(error)
        raise UserError(
            f"{source} cannot be prepared in {target.parent}: {trouble}. Free some space, or set XDG_CACHE_HOME to a "
            "folder on another disk."
        ) from error
    return target


def _place(prepared: Path, target: Path, aside: Path) -> None:
    """Renames a complete data set to its place, unless another process was faster."""
    with suppress(OSError):
        prepared.rename(target)
    if (target / INFO).is_file():
        return
    # Something is left there of a data set that was deleted in part; another process may be replacing it, too.
    with suppress(FileNotFoundError):
        target.rename(aside / ".remains")
    try:
        prepared.rename(target)
    except OSError:
        if not (target / INFO).is_file():
            raise


@contextmanager
def progress_bar(console: Console, label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Shows a progress bar, and yields the function that advances it."""
    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeLeftColumn())
    # The file is fixed, because TFDS is silenced by redirecting the standard output.
    with Progress(*columns, console=Console(file=console.file), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda count: bar.advance(task, count)
