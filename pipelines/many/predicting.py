"""From pictures to rows: a streamed job that can be killed and goes on."""

import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from pipelines.errors import UserError
from pipelines.many.inputs import listed
from pipelines.many.parts import ROWS, Parts, fingerprint
from pipelines.many.seeing import Seen, seen
from serving import manifest
from serving.errors import ServingError
from serving.manifest import GATE_MEANS, PROBABILITIES
from serving.model import Model, open_model, top

# The best size of a batch on one thread of a CPU, for nets of 10 to 50 layers.
BATCH = 64
INTERVAL = 1.0


@dataclass(frozen=True)
class Job:
    """What to predict.

    Args:
        model: a version folder, or a model's folder.
        inputs: see `pipelines.many.inputs.listed`.
        out: the Parquet file.
        count: how many classes to name.
        explain: whether to write the mean gate of each layer.
        data_dir: where prepared data lies.
    """

    model: Path
    inputs: tuple[str, ...]
    out: Path
    count: int
    explain: bool
    data_dir: Path | None


@dataclass(frozen=True)
class Done:
    """What came of a job."""

    pictures: int
    unreadable: int
    resumed: int
    seconds: float


def run(job: Job, console: Console) -> Done:
    """Predicts all pictures of a job, from where an earlier attempt was stopped.

    Args:
        job: what to predict.
        console: where progress is shown.

    Returns:
        How many pictures, how many of them could not be read, how many were there already, and how long it took.

    Raises:
        UserError: the model is missing, damaged or has no gates; an input means nothing; the pictures have changed
            since the earlier attempt.
    """
    try:
        model = open_model(job.model)
    except ServingError as error:
        raise UserError(str(error)) from error
    if job.explain and model.manifest.gates is None:
        raise UserError(f"{model.folder} was exported without its gates. Export it with `highway export --gates`.")
    if job.out.is_dir():
        raise UserError(f"{job.out} is a folder. Name a file, such as {job.out}/predictions.parquet.")
    parts = Parts(job.out, _content(job, model))
    pictures = listed(job.inputs, job.data_dir)
    resumed = parts.skip(picture.name for picture in pictures)
    threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    counted = _Counter(console, resumed)
    rows = counted.over(seen(model, pictures, threads))
    schema = _schema(model, job)
    parts.write(_tables(model, job, rows, schema))
    parts.finish(schema)
    return Done(counted.pictures, counted.unreadable, resumed, counted.seconds)


def _content(job: Job, model: Model) -> dict[str, Any]:
    digest = fingerprint((model.folder / manifest.NAME).read_bytes())
    return {"model": digest, "inputs": [*job.inputs], "top": job.count, "gates": job.explain}


def _schema(model: Model, job: Job) -> pa.Schema:
    classes = pa.list_(pa.float32())
    fields = [
        ("file", pa.string()),
        ("error", pa.string()),
        ("label", pa.string()),
        ("probability", pa.float32()),
        ("top", pa.list_(pa.struct([("label", pa.string()), ("probability", pa.float32())]))),
        ("probabilities", classes),
    ]
    if job.explain:
        fields.append(("gate_means", classes))
    described = {
        "model": model.manifest.name,
        "version": str(model.manifest.version),
        "labels": "\n".join(model.manifest.labels),
        "layers": "\n".join(model.manifest.gates or ()),
    }
    return pa.schema(fields, metadata=described)


def _tables(model: Model, job: Job, rows: Iterable[Seen], schema: pa.Schema) -> Iterator[pa.Table]:
    """Tables of `ROWS` rows; the last one has what is left."""
    batches: list[pa.RecordBatch] = []
    for batch in _chunks(rows, BATCH):
        batches.append(_batch(model, job, batch, schema))
        if len(batches) * BATCH >= ROWS:
            yield pa.Table.from_batches(batches, schema)
            batches = []
    if batches:
        yield pa.Table.from_batches(batches, schema)


def _batch(model: Model, job: Job, rows: Sequence[Seen], schema: pa.Schema) -> pa.RecordBatch:
    images = [row.image for row in rows if row.image is not None]
    outputs = model.predict(np.stack(images)) if images else {}
    answers = iter(_answers(model, outputs, job.count)) if images else iter(())
    records = []
    for row in rows:
        answer = next(answers) if row.image is not None else {}
        records.append({"file": row.name, "error": row.error, **answer})
    return pa.RecordBatch.from_pylist(records, schema=schema)


def _answers(model: Model, outputs: dict[str, np.ndarray], count: int) -> Iterator[dict[str, Any]]:
    probabilities, labels = outputs[PROBABILITIES], model.manifest.labels
    for number, classes in enumerate(top(probabilities, count)):
        row = probabilities[number]
        named = [{"label": labels[index], "probability": row[index]} for index in classes]
        answer = {**named[0], "top": named, "probabilities": row}
        if GATE_MEANS in outputs:
            answer[GATE_MEANS] = outputs[GATE_MEANS][number]
        yield answer


def _chunks(rows: Iterable[Seen], size: int) -> Iterator[list[Seen]]:
    rest = iter(rows)
    while chunk := list(islice(rest, size)):
        yield chunk


class _Counter:
    """Counts and shows rows as they go by."""

    def __init__(self, console: Console, resumed: int) -> None:
        self._console = console
        self._resumed = resumed
        self.pictures, self.unreadable, self.seconds = resumed, 0, 0.0

    def over(self, rows: Iterable[Seen]) -> Iterator[Seen]:
        start = shown = time.monotonic()
        with self._console.status("predicting") as status:
            for row in rows:
                self.pictures += 1
                self.unreadable += row.error is not None
                now = time.monotonic()
                self.seconds = now - start
                if now - shown > INTERVAL:
                    shown = now
                    rate = (self.pictures - self._resumed) / self.seconds
                    status.update(f"{self.pictures:,} pictures, {rate:,.0f} a second, {self.unreadable:,} unreadable")
                yield row
