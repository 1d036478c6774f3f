"""A prediction job over the rows of a table, which resumes after being killed."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.url import Location
from pipelines.data.own.new_rows import TableRows
from pipelines.inference import tables
from pipelines.inference.job import JobResult, PredictionJob, Writer, check_out, saved
from pipelines.inference.part_files import opened
from pipelines.inference.part_tasks import PartModel, WrittenPart, check_version, part_model, write_parts, written
from pipelines.inference.parts import Parts, files, open_parts
from pipelines.inference.progress import JobProgress
from pipelines.inference.tables import Outputs, TableModel, TablePredictions
from serving import manifest
from serving.manifest import PROBABILITIES, VALUE


@dataclass(frozen=True)
class TablePart:
    """A task: rows whose predictions become a part.

    Args:
        model: the model.
        schema: the columns.
        folder: the folder of the parts.
        first: number of the first row.
        rows: the rows.
        path: the table, for messages.
    """

    model: PartModel
    schema: pa.Schema
    folder: Location
    first: int
    rows: TableRows
    path: Path


class WrittenTable(NamedTuple):
    """A file of predictions."""

    folder: Path
    """The version that predicted."""
    found: TablePredictions
    """All predictions in the file, without gate means."""
    result: JobResult
    """Numbers of rows."""


def run(job: PredictionJob, console: Console, executor: Executor | None = None) -> WrittenTable:
    """Predicts all rows of a table, resuming earlier attempts.

    The file has the number of each row, from 1, its prediction, and its true target if the table has it.

    Args:
        job: the job; its only input is a CSV, TSV or Parquet file.
        console: where to print progress.
        executor: opened here, to predict on other machines; None predicts in this process.

    Raises:
        UserError: the model is missing, damaged or has no gates; the table cannot be read; the file belongs to another
            job, such as one for the table before it was changed; or the model computes NaN.

    Example:
        run(PredictionJob(Path("models/houses"), ("houses.csv",), Path("prices.parquet"), 3), Console()).found.score()
    """
    check_out(job.out)
    folder, model = tables.local(job.model)
    if job.explain and model.layers is None:
        raise UserError(f"{folder} {manifest.WITHOUT_GATES}")
    path = Path(job.inputs[0])
    rows = tables.read_rows(model, path)
    description = {
        "model": f"{folder.resolve().parent.name} {folder.name}, {_digest(folder / manifest.NAME)}",
        "rows": f"{path.name}, {_digest(path)}",
        "top": job.count,
        "explain": job.explain,
    }
    seconds = 0.0
    with open_parts(job.out, description) as parts:
        resumed = parts.rows
        if not parts.is_complete:
            schema = _schema(model, rows, job, path, json.dumps(description))
            parts.check_columns(schema)
            progress = JobProgress(console, lambda: len(rows.values), resumed, "rows")
            try:
                with progress:
                    writer = Writer(parts, schema, progress)
                    if executor:
                        shared = part_model(job.model, folder, job.count, job.explain)
                        _predict_parts(executor, shared, rows, path, writer)
                    else:
                        writer.write(_columns(model, rows, job, path, parts))
            except KeyboardInterrupt:
                say(console, saved(parts, "repeat the command to resume", "rows"))
                raise
            parts.finish(schema, len(rows.values))
            seconds = progress.seconds
    found = TablePredictions(model, rows, _outputs(job.out) if rows.truth is not None else {}, seconds)
    return WrittenTable(folder, found, JobResult(len(rows.values), resumed, 0, seconds))


def predict_rows(part: TablePart) -> WrittenPart:
    """Predicts the rows of a part and writes their predictions.

    Raises:
        UserError: this machine lacks the model or the folder of the parts, or the model computes NaN.
    """
    model = _opened(part.model)
    batches = []
    first = part.first
    for batch in tables.batches(model, part.rows, part.path, part.first):
        columns = tables.columns(batch, part.model.count, part.model.explain, first)
        batches.append(pa.RecordBatch.from_arrays([*columns.values()], schema=part.schema))
        first += len(batch)
    return written(pa.Table.from_batches(batches, part.schema), part.folder, part.first)


def _columns(
    model: TableModel, rows: TableRows, job: PredictionJob, path: Path, parts: Parts
) -> Iterator[tuple[int, list[pa.Array]]]:
    """Yields the columns of the rows in no part, batch by batch, each with the number of its first row."""
    for start, end in parts.gaps():
        first = start
        for batch in tables.batches(model, rows.between(start, end), path, start):
            yield first, list(tables.columns(batch, job.count, job.explain, first).values())
            first += len(batch)


def _predict_parts(executor: Executor, model: PartModel, rows: TableRows, path: Path, writer: Writer) -> None:
    def batches() -> Iterator[tuple[int, range]]:
        for start, end in writer.parts.gaps():
            whole = range(start, len(rows.values) if end is None else end)
            yield from ((first, whole[first - start :][: tables.BATCH]) for first in whole[:: tables.BATCH])

    def make(first: int, group: list[range]) -> TablePart:
        return TablePart(model, writer.schema, writer.parts.folder, first, rows.between(first, group[-1].stop), path)

    with executor:
        write_parts(executor, batches(), make, predict_rows, parts=writer.parts, progress=writer.progress)


@lru_cache(maxsize=1)
def _opened(model: PartModel) -> TableModel:
    """Opens a model once per process."""
    folder, opened = tables.local(model.path)
    check_version(model, folder)
    return opened


def _schema(model: TableModel, rows: TableRows, job: PredictionJob, path: Path, description: str) -> pa.Schema:
    # The first row is predicted once more, because the columns depend on the outputs of the model.
    one = next(tables.batches(model, rows.between(0, 1), path))
    metadata = {"target": model.target, "labels": "\n".join(model.labels), "job": description}
    if job.explain:
        metadata["layers"] = "\n".join(model.layers or ())
    return pa.table(tables.columns(one, job.count, job.explain)).schema.with_metadata(metadata)


def _outputs(out: Location) -> Outputs:
    """Reads the predictions of a result."""
    chunks: list[Any] = []
    for path in files(out):
        with opened(path) as file:
            table = pq.ParquetFile(file)
            name = VALUE if VALUE in table.schema_arrow.names else PROBABILITIES
            chunks += table.read(columns=[name])[name].chunks
    if name == VALUE:
        return {name: np.concatenate([chunk.to_numpy() for chunk in chunks])[:, None]}
    return {name: np.concatenate([chunk.flatten().to_numpy().reshape(len(chunk), -1) for chunk in chunks])}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
