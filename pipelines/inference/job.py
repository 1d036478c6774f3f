"""A prediction job over any number of images, which resumes after being killed."""

import hashlib
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor as Threads
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from threading import Lock
from typing import Any, Generic, TypeVar

import pyarrow as pa
from rich.console import Console

from pipelines.core import environment
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.url import Location
from pipelines.inference import inputs, part_tasks, stored_model
from pipelines.inference.net_inputs import BATCH, batches, converter
from pipelines.inference.part_files import SUFFIX
from pipelines.inference.part_tasks import ImagePart, part_model, predict_part
from pipelines.inference.parts import GROUP, Parts, files, open_parts
from pipelines.inference.predict import NO_IMAGES, no_images
from pipelines.inference.progress import JobProgress, Total
from pipelines.inference.rows import RowBuilder
from serving import manifest
from serving.errors import ServingError
from serving.model import Model, open_model

# Seconds after which a part is written even if it has fewer rows than a row group.
INTERVAL = 30.0
# Batches per thread that are in progress or waiting.
AHEAD = 3
# Seconds after which processes may take over from threads, and those that their start costs, in which nothing is
# predicted.
SOON, START = 1.0, 1.0
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class PredictionJob:
    """A prediction job over images, or over a table.

    Args:
        model: a version folder, or a model folder, or its URL.
        inputs: see `pipelines.inference.inputs.sources`; or a table.
        out: the Parquet file, or the folder of such files, or its URL.
        count: number of classes per row.
        explain: whether to write the mean gate of each layer.
        data_dir: folder of prepared data.
    """

    model: Location
    inputs: tuple[str, ...]
    out: Location
    count: int
    explain: bool = False
    data_dir: Path | None = None


@dataclass(frozen=True)
class JobResult:
    """The result of a job.

    Args:
        images: rows in the file.
        resumed: rows written by earlier attempts.
        unreadable: rows in the file with an error.
        seconds: duration of this attempt; 0 if the file was complete before it.
    """

    images: int
    resumed: int
    unreadable: int
    seconds: float


def run(
    job: PredictionJob,
    console: Console,
    executor: Executor | None = None,
    processes: Callable[[Path], Executor] | None = None,
) -> JobResult:
    """Predicts all images of a job, resuming earlier attempts.

    Args:
        job: the job.
        console: where to print progress.
        executor: opened here, to predict on other machines; None predicts on this one, in threads of this process.
        processes: makes an executor of processes of this machine, given a folder for their logs, which take over from
            threads if that ends sooner; None leaves all to threads.

    Returns:
        The result.

    Raises:
        UserError: the model is missing, damaged or has no gates; an input matches nothing, has no images or fails; the
            file belongs to another job, or the images have changed since an earlier attempt.

    Example:
        run(PredictionJob(Path("models/digits"), ("photos",), Path("predictions.parquet"), 3), Console())
    """
    check_out(job.out)
    model = _open(job)
    sources = inputs.sources(job.inputs, job.data_dir)
    listing = inputs.Listing(sources)
    description = _describe(job, model, sources)
    with open_parts(job.out, description) as parts:
        skipped, resumed = parts.skip(listing.names()), parts.rows
        if listing.failure:
            raise listing.failure
        if parts.is_complete:
            return JobResult(resumed, resumed, parts.unreadable, 0.0)
        builder = RowBuilder(model, job.count, job.explain)
        schema = builder.schema(json.dumps(description))
        parts.check_columns(schema)
        progress = JobProgress(console, Total(sources, listing).now, resumed, "images", parts.unreadable)
        try:
            with progress:
                found, writer = missing(listing, parts, skipped), Writer(parts, schema, progress)
                if executor:
                    _predict_parts(executor, found, job, builder, writer)
                elif processes and environment.cores() > 1:
                    _predict_here(processes, found, job, builder, writer)
                else:
                    _predict(found, builder, writer)
        except KeyboardInterrupt:
            say(console, saved(parts, "repeat the command to resume", "images"))
            raise
        if listing.failure:
            advice = saved(parts, "fix it and repeat the command to resume", "images")
            raise UserError(f"{listing.failure} {advice}")
        # In a bucket, the same command elsewhere may have written rows that are not counted here.
        images = sum(listing.counts)
        if not images:
            raise no_images(job.inputs)
        parts.finish(schema, images)
    return JobResult(images, resumed, progress.unreadable, progress.seconds)


def ordered(pool: Threads, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Applies a function in parallel with bounded memory. Threads take their next item themselves, which saves a
    producer thread that would contend for the GIL.

    Args:
        pool: the threads.
        work: the function to apply to each item.
        items: the items; the threads take one at a time.
        ahead: maximum number of items in progress or waiting.

    Yields:
        The results, in the order of the items.

    Example:
        with ThreadPoolExecutor(2) as pool:
            sizes = list(ordered(pool, os.path.getsize, paths, 4))
    """
    queue = _Queue(work, items)
    running = deque(pool.submit(queue.next) for _ in range(ahead))
    waiting: dict[int, Result] = {}
    wanted = 0
    while running:
        done = running.popleft().result()
        if not done:
            continue
        number, waiting[number] = done
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted += 1
            running.append(pool.submit(queue.next))


class _Queue(Generic[Item, Result]):
    """A queue that numbers items as they are taken."""

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item]) -> None:
        self._work = work
        self._items = enumerate(items)
        self._lock = Lock()

    def next(self) -> tuple[int, Result] | None:
        """Processes the next item; None if there is none."""
        with self._lock:
            found = next(self._items, None)
        return found and (found[0], self._work(found[1]))


def missing(listing: inputs.Listing, parts: Parts, row: int) -> Iterator[tuple[int, list[inputs.Fetched]]]:
    """Fetches the images without a row in batches, which are those of an uninterrupted job.

    Args:
        listing: the images from a row on.
        parts: the existing parts, whose images are skipped.
        row: the row.

    Yields:
        The number of the first row of a batch, and its images.

    Raises:
        UserError: the images have changed since a part was written.
    """
    for first, end in parts.gaps():
        parts.skip(listing.names(), row)
        if listing.failure:
            return
        row = first
        for batch in batches(islice(listing.fetched(), None if end is None else end - first)):
            yield row, batch
            row += len(batch)
        if listing.failure:
            return
        row = end or row


def _predict(found: Iterator[tuple[int, list[inputs.Fetched]]], builder: RowBuilder, writer: "Writer") -> None:
    threads = environment.cores()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
    convert = converter(builder.model)
    try:
        writer.write(ordered(pool, lambda one: (one[0], builder(convert(one[1]))), found, AHEAD * threads))
    finally:
        pool.shutdown(cancel_futures=True)


def _predict_here(
    processes: Callable[[Path], Executor],
    found: Iterator[tuple[int, list[inputs.Fetched]]],
    job: PredictionJob,
    builder: RowBuilder,
    writer: "Writer",
) -> None:
    """Predicts in threads, which start at once, and then in processes, which share no GIL, if that ends sooner.

    Processes receive the images of an archive only if these are small: large ones would take much memory, and are
    decoded without the GIL anyway.
    """
    started, used = time.monotonic(), time.process_time()

    def first() -> Iterator[tuple[int, list[inputs.Fetched]]]:
        taken = 0
        for row, batch in found:
            yield row, batch
            taken += len(batch)
            if (seconds := time.monotonic() - started) < SOON:
                continue
            left = writer.progress.left(row + len(batch)) / taken * seconds
            are_small = len(batch) == BATCH or not any(isinstance(image.content, bytes) for image in batch)
            if are_small and processes_pay(seconds, time.process_time() - used, left):
                return

    _predict(first(), builder, writer)
    if following := next(found, None):
        with tempfile.TemporaryDirectory(prefix="highway-") as folder:
            _predict_parts(processes(Path(folder)), chain([following], found), job, builder, writer)


def processes_pay(seconds: float, used: float, left: float) -> bool:
    """Returns whether threads would waste more time on waiting for the GIL than processes take to start.

    While they wait, cores are idle. Two threads on small images use three quarters of two cores, or less, and much of
    that to hand the GIL over.

    Args:
        seconds: time that threads have taken so far.
        used: processor time in it.
        left: time that they would still take; 0 while it is unknown.

    Example:
        processes_pay(1.0, 1.46, 8.0)  # True on two cores
    """
    idle = 1 - used / (environment.cores() * seconds)
    return left > 0 and idle * left > START


def _predict_parts(
    executor: Executor,
    found: Iterator[tuple[int, list[inputs.Fetched]]],
    job: PredictionJob,
    builder: RowBuilder,
    writer: "Writer",
) -> None:
    model = part_model(job.model, builder.model.folder, job.count, job.explain)

    def make(first: int, group: list[list[inputs.Fetched]]) -> ImagePart:
        return ImagePart(model, writer.schema, writer.parts.folder, first, group, part_tasks.visible(group))

    with executor:
        part_tasks.write_parts(executor, found, make, predict_part, parts=writer.parts, progress=writer.progress)


@dataclass(frozen=True)
class Writer:
    """Writes the rows of a job.

    Args:
        parts: the parts of its file.
        schema: the columns.
        progress: counts the rows.
    """

    parts: Parts
    schema: pa.Schema
    progress: JobProgress

    def write(self, results: Iterable[tuple[int, list[pa.Array]]]) -> None:
        """Writes parts as they fill up, and the rest at the end or on interruption.

        Args:
            results: the number of the first row of each batch, and its columns in the order of the schema.
        """
        waiting: list[pa.RecordBatch] = []
        first = 0
        since = time.monotonic()
        try:
            for row, columns in results:
                batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
                if waiting and row > first + sum(map(len, waiting)):
                    # Another attempt has written the rows in between.
                    part, waiting = waiting, []
                    self._save(part, first)
                if not waiting:
                    first = row
                waiting.append(batch)
                readable = batch.column("error").null_count if "error" in self.schema.names else len(batch)
                self.progress.add(len(batch), len(batch) - readable)
                if sum(map(len, waiting)) >= GROUP or time.monotonic() - since > INTERVAL:
                    part, waiting = waiting, []
                    self._save(part, first)
                    since = time.monotonic()
        finally:
            if waiting:
                self._save(waiting, first)

    def _save(self, batches: list[pa.RecordBatch], first: int) -> None:
        self.parts.write(pa.Table.from_batches(batches, self.schema), first)
        self.progress.saved()


def check_out(out: Location) -> None:
    """Raises `UserError` unless a path names a Parquet file or a folder of such files, which may be complete."""
    if out.is_dir() and not files(out):
        raise UserError(
            f"{out} is a folder. Name a file in it, such as {out / 'predictions.parquet'}, or a new folder."
        )
    if out.suffix not in (SUFFIX, ""):
        raise UserError(f"--out must name a file that ends in {SUFFIX}, or a new folder. Received: {out}.")


def _open(job: PredictionJob) -> Model:
    try:
        model = open_model(stored_model.local(job.model))
        if model.manifest.is_table:
            raise UserError(f"{model.folder} {NO_IMAGES}")
        if model.conversion is None:
            raise UserError(f"{model.folder} has no {manifest.PICTURE}. Export the run again.")
    except ServingError as error:
        raise UserError(str(error)) from error
    if job.explain and model.manifest.gates is None:
        raise UserError(f"{model.folder} {manifest.WITHOUT_GATES}")
    return model


def _describe(job: PredictionJob, model: Model, sources: Sequence[inputs.Source]) -> dict[str, Any]:
    """Everything that determines the content of the file, except for what files contain."""
    digest = hashlib.sha256((model.folder / manifest.NAME).read_bytes()).hexdigest()
    described = {
        "version": model.manifest.version,
        "model": f"{model.manifest.name}, {digest}",
        "paths": [*job.inputs],
        "top": job.count,
        "explain": job.explain,
    }
    # Rows of a split have the same names wherever its data set is.
    data = inputs.digests(sources)
    return described | {"data": data} if data else described


def saved(parts: Parts, advice: str, examples: str) -> str:
    """Returns a sentence about the rows that an interrupted job has written.

    Args:
        parts: the parts of its file.
        advice: what to do.
        examples: what a row stands for, in the plural: "images" or "rows".
    """
    return f"{parts.rows:,} {examples} are saved in {parts.folder}: {advice}." if parts.paths else "Nothing is saved."
