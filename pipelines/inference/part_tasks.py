"""Bulk prediction by several processes, here or on a cluster: each task predicts and writes a part of the result.

One process lists the images and reads archives and data sets, so that every image is in exactly one part. Its batches
are those of a job in a single process, so that the results are equal. Only this process commits the written files.
"""

import hashlib
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple, TypeVar

import pyarrow as pa

from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.url import Location, Url
from pipelines.inference import stored_model
from pipelines.inference.inputs import Fetched
from pipelines.inference.net_inputs import NetInput, converter
from pipelines.inference.parts import GROUP, Parts, write_aside
from pipelines.inference.progress import JobProgress
from pipelines.inference.rows import RowBuilder
from serving import manifest
from serving.errors import ServingError
from serving.model import open_model

LEAST, MOST = 1024, 64
"""Rows of the smallest parts, with which a job ends, and batches of the largest, which take a few seconds."""
SHARES = 4
"""Parts into which the remaining rows are divided for each task that can run at the same time."""
AHEAD = 2
"""Tasks in flight for each that can run at the same time, so that no process waits for the next one."""
POLL, INTERVAL = 1.0, 30.0
"""Seconds to wait for a task, and between two lines of progress."""

Batch = TypeVar("Batch", bound=Sized)
Part = TypeVar("Part")


@dataclass(frozen=True)
class PartModel:
    """A model, and the columns to write for each image or row; all processes of a job use the same.

    Args:
        path: see `pipelines.inference.stored_model.local`.
        digest: digest of its manifest.
        count: number of classes per row.
        explain: whether to write the mean gate of each layer.
    """

    path: Location
    digest: str
    count: int
    explain: bool


@dataclass(frozen=True)
class ImagePart:
    """A task: images whose rows become a part.

    Args:
        model: the model.
        schema: the columns.
        folder: the folder of the parts.
        first: number of the first row.
        batches: the images.
        visible: a file that this machine must see, as the one that listed the images does; None if none is on a disk.
    """

    model: PartModel
    schema: pa.Schema
    folder: Location
    first: int
    batches: list[list[Fetched]]
    visible: Path | None


class WrittenPart(NamedTuple):
    """The result of a task."""

    name: str
    """See `pipelines.inference.parts.write_aside`."""
    first: int
    """Number of its first row."""
    rows: int
    """Number of rows."""
    unreadable: int
    """Number of rows with an error."""


def predict_part(part: ImagePart) -> WrittenPart:
    """Predicts the images of a part and writes their rows.

    Raises:
        UserError: this machine lacks the model, the images or the folder of the parts.
    """
    builder, convert = _opened(part.model)
    if part.visible and not part.visible.exists():
        raise UserError(
            f"{part.visible} is missing on {socket.gethostname()}. All machines must have the images under the same "
            "path; archives and data sets are read by this one."
        )
    batches = [pa.RecordBatch.from_arrays(builder(convert(batch)), schema=part.schema) for batch in part.batches]
    return written(pa.Table.from_batches(batches, part.schema), part.folder, part.first)


def written(table: pa.Table, folder: Location, first: int) -> WrittenPart:
    """Writes the rows of a part.

    Args:
        table: the rows.
        folder: the folder of the parts.
        first: number of the first row.
    """
    errors = table["error"] if "error" in table.column_names else None
    unreadable = 0 if errors is None else len(errors) - errors.null_count
    return WrittenPart(write_aside(table, folder, first), first, len(table), unreadable)


def visible(batches: Iterable[Iterable[Fetched]]) -> Path | None:
    """Returns a file of these images that exists; None if there is none."""
    paths = (image.content for batch in batches for image in batch if isinstance(image.content, Path))
    return next((path for path in paths if path.exists()), None)


def write_parts(
    executor: Executor,
    batches: Iterator[tuple[int, Batch]],
    make: Callable[[int, list[Batch]], Part],
    write: Callable[[Part], WrittenPart],
    *,
    parts: Parts,
    progress: JobProgress,
) -> None:
    """Writes all rows that are in no part yet.

    Args:
        executor: runs the tasks; it is open.
        batches: the batches, each with the number of its first row.
        make: makes a task of consecutive batches, given the number of their first row.
        write: performs a task.
        parts: the parts of the result.
        progress: counts the rows.

    Raises:
        UserError: a part cannot be written. Those that were written are kept.
    """
    capacity = executor.capacity()
    groups = grouped(batches, lambda row: max(LEAST, progress.left(row) // (SHARES * capacity)))
    running, shown, since = 0, progress.images, time.monotonic()
    more = True
    while more or running:
        capacity = max(1, executor.capacity())
        while more and running < AHEAD * capacity:
            group = next(groups, None)
            if group is None:
                more = False
            else:
                executor.submit(f"part {group[0]:08}", make(*group), write)
                running += 1
        for outcome in executor.finished(POLL):
            running -= 1
            if failure := outcome.failure():
                raise UserError(failure)
            part: WrittenPart = outcome.result
            parts.commit(part.name, part.first)
            progress.add(part.rows, part.unreadable)
        if progress.images - shown >= GROUP or time.monotonic() - since > INTERVAL or not (more or running):
            progress.saved()
            shown, since = progress.images, time.monotonic()


def grouped(batches: Iterable[tuple[int, Batch]], rows: Callable[[int], int]) -> Iterator[tuple[int, list[Batch]]]:
    """Groups consecutive batches into parts.

    Args:
        batches: the batches, each with the number of its first row.
        rows: returns the number of rows of a part that begins at a row.

    Yields:
        The number of the first row, and up to `MOST` batches.
    """
    group: list[Batch] = []
    first = count = 0
    for row, batch in batches:
        if group and (row != first + count or count >= rows(first) or len(group) == MOST):
            yield first, group
            group = []
        if not group:
            first, count = row, 0
        group.append(batch)
        count += len(batch)
    if group:
        yield first, group


def part_model(given: Location, folder: Path, count: int, explain: bool) -> PartModel:
    """Describes an opened model.

    Args:
        given: the path, name or URL that the user gave.
        folder: the folder of the opened version.
        count: number of classes per row.
        explain: whether to write the mean gate of each layer.
    """
    if isinstance(given, Url):
        path: Location = stored_model.version_url(given, folder)
    else:
        # A net of the package has another path on a machine that has the package elsewhere.
        path = folder if given.exists() else given
    return PartModel(path, _digest(folder), count, explain)


def check_version(model: PartModel, folder: Path) -> None:
    """Raises `UserError` unless the version that this process opened is the one described."""
    if _digest(folder) != model.digest:
        raise UserError(
            f"{folder} on {socket.gethostname()} is not the model that the job began with. Copy that there."
        )


def _digest(folder: Path) -> str:
    """Returns the digest of a version's manifest, which has those of all its files."""
    return hashlib.sha256((folder / manifest.NAME).read_bytes()).hexdigest()


@lru_cache(maxsize=1)
def _opened(model: PartModel) -> tuple[RowBuilder, Callable[[list[Fetched]], list[NetInput]]]:
    """Opens a model once per process."""
    try:
        opened = open_model(stored_model.local(model.path))
    except ServingError as error:
        raise UserError(f"{error} This was on {socket.gethostname()}.") from error
    check_version(model, opened.folder)
    return RowBuilder(opened, model.count, model.explain), converter(opened)
