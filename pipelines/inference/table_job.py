"""A prediction job over the rows of a table, which resumes after being killed."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.inference import tables
from pipelines.inference.job import JobResult, PredictionJob, Writer, check_out, saved
from pipelines.inference.parts import open_parts
from pipelines.inference.progress import JobProgress
from pipelines.inference.table_rows import TableRows
from pipelines.inference.tables import Outputs, TableModel, TablePredictions
from serving import manifest
from serving.manifest import PROBABILITIES, VALUE


class WrittenTable(NamedTuple):
    """A file of predictions."""

    folder: Path
    """The version that predicted."""
    found: TablePredictions
    """All predictions in the file, without gate means."""
    result: JobResult
    """Numbers of rows."""


def run(job: PredictionJob, console: Console) -> WrittenTable:
    """Predicts all rows of a table, resuming earlier attempts.

    The file has the number of each row, from 1, its prediction, and its true target if the table has it.

    Args:
        job: the job; its only input is a CSV, TSV or Parquet file.
        console: where to print progress.

    Raises:
        UserError: the model is missing, damaged or has no gates; the table cannot be read; the file belongs to another
            job, such as one for the table before it was changed; or the model computes NaN.

    Example:
        run(PredictionJob(Path("models/houses"), ("houses.csv",), Path("prices.parquet"), 3), Console()).found.score()
    """
    check_out(job.out)
    folder, model = tables.local(job.model)
    if job.explain and model.layers is None:
        raise UserError(f"{folder} was exported without its gates. Export it with `highway export --gates`.")
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
        resumed = pq.read_metadata(job.out).num_rows if parts.is_complete else parts.rows
        if not parts.is_complete:
            schema = _schema(model, rows, job, path, json.dumps(description))
            progress = JobProgress(console, lambda: len(rows.values), resumed, "rows")
            try:
                with progress:
                    Writer(parts, schema, progress).write(_columns(model, rows, job, path, resumed))
            except KeyboardInterrupt:
                say(console, saved(parts, "repeat the command to resume", "rows"))
                raise
            parts.finish(schema)
            seconds = progress.seconds
    found = TablePredictions(model, rows, _outputs(job.out) if rows.truth is not None else {}, seconds)
    return WrittenTable(folder, found, JobResult(len(rows.values), resumed, 0, seconds))


def _columns(
    model: TableModel, rows: TableRows, job: PredictionJob, path: Path, first: int
) -> Iterator[list[pa.Array]]:
    """Yields the columns of the remaining rows, batch by batch."""
    for batch in tables.batches(model, rows, path, first):
        yield list(tables.columns(batch, job.count, job.explain, first).values())
        first += len(batch)


def _schema(model: TableModel, rows: TableRows, job: PredictionJob, path: Path, description: str) -> pa.Schema:
    # The first row is predicted once more, because the columns depend on the outputs of the model.
    truth = None if rows.truth is None else rows.truth[:1]
    one = next(tables.batches(model, TableRows(rows.values[:1], truth, ()), path))
    metadata = {"target": model.target, "labels": "\n".join(model.labels), "job": description}
    if job.explain:
        metadata["layers"] = "\n".join(model.layers or ())
    return pa.table(tables.columns(one, job.count, job.explain)).schema.with_metadata(metadata)


def _outputs(out: Path) -> Outputs:
    """Reads the predictions of a file."""
    name = VALUE if VALUE in pq.read_schema(out).names else PROBABILITIES
    chunks: list[Any] = pq.read_table(out, columns=[name])[name].chunks
    if name == VALUE:
        return {name: np.concatenate([chunk.to_numpy() for chunk in chunks])[:, None]}
    return {name: np.concatenate([chunk.flatten().to_numpy().reshape(len(chunk), -1) for chunk in chunks])}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
