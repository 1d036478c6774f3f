"""Prediction of the rows of a table, with an exported model or by an endpoint, without TensorFlow."""

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.markup import escape
from rich.table import Table

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.files import replacing
from pipelines.inference.rows import class_columns, lists
from pipelines.inference.table_rows import TableRows, read
from serving.client import Client, ClientError
from serving.errors import ServingError
from serving.manifest import GATE_MEANS, PROBABILITIES, VALUE, Column
from serving.model import open_model, top
from serving.rows import decode
from serving.schemas import Guess, Prediction

# Rows of a batch here, and of a request, well below the limit of an endpoint.
BATCH, REQUEST = 8192, 128
# Rows on the screen.
SHOWN = 20

Outputs = Mapping[str, np.ndarray]


class TableModel(NamedTuple):
    """A model for rows of a table, here or at an endpoint."""

    columns: Sequence[Column]
    """The columns that it takes."""
    target: str
    """The column that it predicts."""
    labels: Sequence[str]
    """Names of the classes; none for a regression."""
    layers: Sequence[str] | None
    """Layers of its gates; None if it does not return them."""
    predict: Callable[[np.ndarray], Outputs]
    """Predicts rows, float32 `[n, columns]`."""
    batch: int
    """Rows to predict together."""


@dataclass(frozen=True)
class TablePredictions:
    """Predictions for the rows of a file.

    Args:
        model: the model.
        rows: the rows.
        outputs: `probabilities` or `value`, and `gate_means` if the model returns them.
        seconds: time of the predictions.
    """

    model: TableModel
    rows: TableRows
    outputs: Outputs
    seconds: float

    def __len__(self) -> int:
        """Returns the number of rows."""
        return len(self.rows.values)

    def score(self) -> str:
        """Returns how good the predictions are, if the file has the target: accuracy, or mean absolute error and R²."""
        if self.rows.truth is None or np.isnan(self.rows.truth).all():
            return ""
        known = ~np.isnan(self.rows.truth)
        truth = self.rows.truth[known]
        count = "" if known.all() else f" on {len(truth):,} rows with a {self.model.target}"
        if VALUE not in self.outputs:
            return f"accuracy {np.mean(self.outputs[PROBABILITIES][known].argmax(-1) == truth):.1%}{count}"
        errors = self.outputs[VALUE][known, 0] - truth
        spread = np.square(truth - truth.mean()).sum()
        determination = f", R² {1 - np.square(errors).sum() / spread:.3f}" if spread else ""
        return f"MAE {np.abs(errors).mean():.4g}{determination}{count}"

    def predictions(self, count: int, most: int | None = None) -> list[Prediction]:
        """Returns the predictions.

        Args:
            count: number of most probable classes.
            most: number of rows, from the first; None is all.
        """
        if VALUE in self.outputs:
            return [Prediction(value=value) for value in self.outputs[VALUE][:most, 0].tolist()]
        probabilities, labels = self.outputs[PROBABILITIES][:most], self.model.labels
        return [
            Prediction(top=tuple(Guess(label=labels[index], probability=row[index]) for index in classes))
            for row, classes in zip(probabilities.tolist(), top(probabilities, count).tolist(), strict=True)
        ]


def local(path: Path) -> tuple[Path, TableModel]:
    """Opens an exported model of a table.

    Args:
        path: a version folder, or a model folder, whose newest version is used.

    Returns:
        The version folder, and the model.

    Raises:
        UserError: the model is missing or damaged, or takes images.

    Example:
        folder, model = local(Path("models/houses"))
    """
    try:
        opened = open_model(path)
    except ServingError as error:
        raise UserError(str(error)) from error
    content = opened.manifest
    if content.target is None:
        raise UserError(f"{opened.folder} takes images, not tables.")
    return opened.folder, TableModel(
        content.columns, content.target, content.labels, content.gates, opened.predict, BATCH
    )


@contextmanager
def remote(url: str, name: str, version: int | None, label: str | None) -> Iterator[tuple[dict[str, Any], TableModel]]:
    """Connects to a model of a table at an endpoint; no model is loaded here.

    Args:
        url: URL of the endpoint; the key is in the environment variable HIGHWAY_API_KEY.
        name: name of the model.
        version: number of the version; None is the newest in service.
        label: label of the version, instead of its number.

    Yields:
        The version that is asked, which becomes that of the first answer, and the model.

    Raises:
        UserError: the endpoint cannot be reached, has no such model, or refuses the key or a row.

    Example:
        with remote("http://127.0.0.1:8501", "houses", None, None) as (_, model):
            predict(model, Path("houses.csv"))
    """
    asked: dict[str, Any] = {"version": version, "label": label}
    try:
        with Client(url, os.environ.get(API_KEY) or None) as client:
            served = next((one for one in client.models() if one.name == name), None)
            if served is None:
                raise UserError(f"{url} serves no model {name!r}. Its /v1/models lists what there is.")
            columns, labels, target = served.input.columns, served.classes, served.input.target
            if target is None:
                raise UserError(f"the model {name!r} of {url} takes images, not tables.")
            places = {one: place for place, one in enumerate(labels)}

            def ask(rows: np.ndarray) -> Outputs:
                given = [decode(row, columns) for row in rows]
                answer = client.predict(name, rows=given, top=len(labels) or 1, **asked)
                # One version predicts all rows, even if a new one is loaded in the meantime.
                asked.update(version=answer.version, label=None)
                if not labels:
                    return {VALUE: np.array([[one.value] for one in answer.predictions], np.float32)}
                probabilities = np.zeros((len(rows), len(labels)), np.float32)
                for row, prediction in zip(probabilities, answer.predictions, strict=True):
                    row[[places[one.label] for one in prediction.top]] = [one.probability for one in prediction.top]
                return {PROBABILITIES: probabilities}

            yield asked, TableModel(columns, target, labels, None, ask, REQUEST)
    except ClientError as error:
        advice = f" Set {API_KEY} to the key of the endpoint." if error.status == 401 else ""
        raise UserError(f"{error}{advice}") from error


def predict(model: TableModel, path: Path) -> TablePredictions:
    """Predicts the rows of a file.

    Args:
        model: the model.
        path: a CSV, TSV or Parquet file.

    Returns:
        The predictions.

    Raises:
        UserError: see `pipelines.inference.table_rows.read`, or the model computes NaN.

    Example:
        predict(model, Path("houses.csv")).score()  # "MAE 0.3129, R² 0.841"
    """
    rows = read(path, model.columns, model.target, model.labels)
    start = time.perf_counter()
    firsts = range(0, len(rows.values), model.batch)
    parts = [model.predict(rows.values[first : first + model.batch]) for first in firsts]
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    for name, value in outputs.items():
        if (wrong := np.flatnonzero(~np.isfinite(value).all(axis=-1))).size:
            raise UserError(f"the model computes NaN or infinity as {name} of row {wrong[0] + 1} of {path}.")
    return TablePredictions(model, rows, outputs, time.perf_counter() - start)


def write(found: TablePredictions, out: Path, count: int, explain: bool) -> None:
    """Writes a Parquet file with the number of each row, from 1, its prediction, and its true target if it has one.

    Args:
        found: the predictions.
        out: the file.
        count: number of most probable classes.
        explain: whether to write the mean gate of each layer.

    Raises:
        UserError: the folder is not writable.
    """
    labels, readable = found.model.labels, np.ones(len(found), bool)
    columns = {"row": pa.array(np.arange(1, len(found) + 1))}
    if VALUE in found.outputs:
        columns[VALUE] = pa.array(found.outputs[VALUE][:, 0])
    else:
        columns |= class_columns(found.outputs[PROBABILITIES], labels, count, readable)
    if explain:
        columns[GATE_MEANS] = lists(found.outputs[GATE_MEANS], readable)
    if (truth := found.rows.truth) is not None:
        columns["true"] = pa.array(_names(truth, labels) if labels else truth, from_pandas=True)
    metadata = {"target": found.model.target, "labels": "\n".join(labels)}
    if explain:
        metadata["layers"] = "\n".join(found.model.layers or ())
    with replacing(out) as aside:
        pq.write_table(pa.table(columns).replace_schema_metadata(metadata), aside, compression="zstd")


def table(found: TablePredictions, count: int) -> Table:
    """Formats the first predictions as a table: row, class, probability and next classes, or value; and true target."""
    target, truth, labels = escape(found.model.target), found.rows.truth, found.model.labels
    made = Table()
    made.add_column("row", justify="right")
    made.add_column(target, justify="left" if labels else "right")
    if labels:
        made.add_column("probability", justify="right")
        made.add_column("next")
    if truth is not None:
        made.add_column(f"true {target}", justify="left" if labels else "right")
        shown = truth[:SHOWN]
        true = _names(shown, labels) if labels else [None if np.isnan(one) else f"{one:.6g}" for one in shown]
    for place, prediction in enumerate(found.predictions(count, SHOWN)):
        if prediction.value is not None:
            cells = [f"[bold]{prediction.value:.6g}[/]"]
        else:
            first, *others = prediction.top
            following = ", ".join(f"{escape(guess.label)} {guess.probability:.1%}" for guess in others)
            cells = [f"[bold]{escape(first.label)}[/]", f"{first.probability:.1%}", following]
        made.add_row(f"{place + 1:,}", *cells, *([escape(true[place] or "")] if truth is not None else []))
    return made


def _names(truth: np.ndarray, labels: Sequence[str]) -> list[str | None]:
    """Returns the names of true classes; None for missing ones, and for those that the model does not have."""
    return [labels[int(one)] if one >= 0 else None for one in truth]
