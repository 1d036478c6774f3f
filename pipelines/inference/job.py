"""A job over any number of pictures, which can be killed and goes on."""

import hashlib
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from rich.console import Console

from pipelines.core import environment
from pipelines.core.errors import UserError
from pipelines.inference import inputs
from pipelines.inference.ordered import ordered
from pipelines.inference.parts import GROUP, Parts, held
from pipelines.inference.picture import SUFFIXES
from pipelines.inference.progress import Shown, Total
from pipelines.inference.rows import Rows, batches, seeing
from serving import manifest
from serving.errors import ServingError
from serving.model import Model, open_model

# A part is written as soon as it has the rows of a group, or that many seconds were worked for it.
INTERVAL = 30.0
# Batches for each thread that are worked on or wait.
AHEAD = 3
SUFFIX = ".parquet"


@dataclass(frozen=True)
class Job:
    """What to predict.

    Args:
        model: a version folder, or a model's folder.
        inputs: see `pipelines.inference.inputs.sources`.
        out: the Parquet file.
        count: how many classes to name.
        explain: whether to write the mean gate of each layer.
        data_dir: where prepared data lies.
    """

    model: Path
    inputs: tuple[str, ...]
    out: Path
    count: int
    explain: bool = False
    data_dir: Path | None = None


@dataclass(frozen=True)
class Done:
    """What came of a job.

    Args:
        pictures: rows in the file.
        resumed: how many of these an earlier attempt had made.
        unreadable: how many of the others have an error.
        seconds: for the others.
    """

    pictures: int
    resumed: int
    unreadable: int
    seconds: float


def run(job: Job, console: Console) -> Done:
    """Predicts all pictures of a job, from where an earlier attempt was stopped.

    Args:
        job: what to predict.
        console: where progress is shown.

    Returns:
        What came of it.

    Raises:
        UserError: the model is missing, damaged or has no gates; an input means nothing, has no pictures or breaks
            off; the file is of another job, or the pictures have changed since the earlier attempt.

    Example:
        run(Job(Path("models/digits"), ("photos", "tfds:mnist/test"), Path("predictions.parquet"), 3), Console())
    """
    _check(job.out)
    model = _opened(job)
    sources = inputs.sources(job.inputs, job.data_dir)
    listing = inputs.Listing(sources)
    described = _described(job, model)
    with held(job.out, described) as parts:
        resumed = parts.skip(listing.names())
        if listing.failure:
            raise listing.failure
        if parts.is_complete:
            return Done(resumed, resumed, 0, 0.0)
        rows = Rows(model, job.count, job.explain)
        schema = rows.schema(json.dumps(described))
        shown = Shown(console, Total(sources, listing), resumed)
        try:
            with shown:
                _predict(listing, rows, _Writer(parts, schema, shown))
        except KeyboardInterrupt:
            console.print(_kept(parts, "repeat the command to go on"), highlight=False, soft_wrap=True)
            raise
        if listing.failure:
            raise UserError(f"{listing.failure} {_kept(parts, 'mend it and repeat the command to go on')}")
        if not shown.pictures:
            raise UserError(
                f"there are no pictures in {' '.join(job.inputs)}. Expected files that end in "
                f"{', '.join(sorted(SUFFIXES))}; tar files in a folder are to be named, for example with a glob."
            )
        parts.finish(schema)
    return Done(shown.pictures, resumed, shown.unreadable, shown.seconds)


def _predict(listing: inputs.Listing, rows: Rows, writer: "_Writer") -> None:
    threads = environment.cores()
    pool = ThreadPoolExecutor(threads, thread_name_prefix="predict")
    see = seeing(rows.model)
    try:
        writer.write(ordered(pool, lambda batch: rows(see(batch)), batches(listing.fetched()), AHEAD * threads))
    finally:
        pool.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class _Writer:
    parts: Parts
    schema: pa.Schema
    shown: Shown

    def write(self, results: Iterable[list[pa.Array]]) -> None:
        """Writes parts as there is enough for them; what is there when it is interrupted, too."""
        waiting: list[pa.RecordBatch] = []
        since = time.monotonic()
        try:
            for columns in results:
                batch = pa.RecordBatch.from_arrays(columns, schema=self.schema)
                waiting.append(batch)
                self.shown.add(len(batch), len(batch) - batch.column("error").null_count)
                if sum(map(len, waiting)) >= GROUP or time.monotonic() - since > INTERVAL:
                    part, waiting = waiting, []
                    self._keep(part)
                    since = time.monotonic()
        finally:
            if waiting:
                self._keep(waiting)

    def _keep(self, batches: list[pa.RecordBatch]) -> None:
        self.parts.write(pa.Table.from_batches(batches, self.schema))
        self.shown.kept()


def _check(out: Path) -> None:
    if out.is_dir():
        raise UserError(f"{out} is a folder. Name a file, such as {out / 'predictions.parquet'}.")
    if out.suffix != SUFFIX:
        raise UserError(f"--out must name a file that ends in {SUFFIX}. Received: {out}.")


def _opened(job: Job) -> Model:
    try:
        model = open_model(job.model)
        if model.picture is None:
            raise UserError(f"{model.folder} has no {manifest.PICTURE}. Export the run again.")
    except ServingError as error:
        raise UserError(str(error)) from error
    if job.explain and model.manifest.gates is None:
        raise UserError(f"{model.folder} was exported without its gates. Export it with `highway export --gates`.")
    return model


def _described(job: Job, model: Model) -> dict[str, Any]:
    """All that decides what is in the file."""
    digest = hashlib.sha256((model.folder / manifest.NAME).read_bytes()).hexdigest()
    return {
        "version": model.manifest.version,
        "model": f"{model.manifest.name}, {digest}",
        "paths": [*job.inputs],
        "top": job.count,
        "explain": job.explain,
    }


def _kept(parts: Parts, then: str) -> str:
    return (
        f"{parts.rows:,} pictures are done and kept in {parts.folder}: {then}." if parts.paths else "Nothing is kept."
    )
