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
from rich.markup import escape
from rich.table import Table

from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.url import Location
from pipelines.data.own.new_rows import TableRows, read
from pipelines.inference import stored_model
from pipelines.inference.net_inputs import not_finite, not_finite_message
from pipelines.inference.predict import class_cells, class_headings
from pipelines.inference.rows import class_columns, lists
from serving.client import Client, ClientError
from serving.errors import ServingError
from serving.inputs import Column
from serving.manifest import GATE_MEANS, PROBABILITIES, VALUE
from serving.model import above_half, open_model, top
from serving.rows import decode
from serving.schemas import MOST_CLASSES, Guess, Prediction

# Rows of a batch here, and of a request, well below the limit of an endpoint.
BATCH, REQUEST = 8192, 128
# Rows on the screen.
SHOWN = 20
_NAME_IMAGES = "Name image files, folders or tar files; images, or paths of them, in the cells of a table are not read."

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
    multi_label: bool = False
    """True if a row may have any number of classes."""
    separator: str | None = None
    """Text between the classes in a cell of the target, if it is known."""


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
        """Formats the score of the predictions, if the file has the target: accuracy, or mean absolute error and R²."""
        known = self.rows.known(self.model.labels)
        if self.rows.truth is None or not known.any():
            return ""
        truth = self.rows.truth[known]
        unknown = self.model.labels and (self.rows.truth < 0).any()
        kind = f"a known {self.model.target}" if unknown else f"a {self.model.target}"
        count = "" if known.all() else f" on {len(truth):,} rows with {kind}"
        if self.model.multi_label:
            right = (self.outputs[PROBABILITIES][known] > 0.5) == truth
            return f"labels right {right.mean():.1%}, all of a row for {right.all(axis=1).mean():.1%}{count}"
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
            Prediction(
                top=tuple(Guess(label=labels[index], probability=row[index]) for index in classes),
                labels=tuple(above_half(row, labels)) if self.model.multi_label else None,
            )
            for row, classes in zip(probabilities.tolist(), top(probabilities, count).tolist(), strict=True)
        ]


def local(path: Location) -> tuple[Path, TableModel]:
    """Opens an exported model of a table.

    Args:
        path: a version folder, or a model folder, whose newest version is used, or its URL.

    Returns:
        The version folder, and the model.

    Raises:
        UserError: the model is missing or damaged, or takes images.

    Example:
        folder, model = local(Path("models/houses"))
    """
    try:
        opened = open_model(stored_model.local(path))
    except ServingError as error:
        raise UserError(str(error)) from error
    content = opened.manifest
    if content.target is None:
        raise UserError(f"{opened.folder} takes images, not tables. {_NAME_IMAGES}")
    return opened.folder, TableModel(
        content.columns,
        content.target,
        content.labels,
        content.gates,
        opened.predict,
        BATCH,
        content.multi_label,
        content.label_separator,
    )


@contextmanager
def remote(url: str, name: str, version: int | None, label: str | None) -> Iterator[tuple[int, TableModel]]:
    """Connects to a model of a table at an endpoint; no model is loaded here.

    Args:
        url: URL of the endpoint; the key is in the environment variable HIGHWAY_API_KEY.
        name: name of the model.
        version: number of the version; None is the newest in service.
        label: label of the version, instead of its number.

    Yields:
        The version, which predicts all rows even if a new one is loaded in the meantime, and the model.

    Raises:
        UserError: the endpoint cannot be reached, has no such model or version, refuses the key or a row, or unloads
            the version in the meantime.

    Example:
        with remote("http://127.0.0.1:8501", "houses", None, None) as (_, model):
            predict(model, Path("houses.csv"))
    """
    try:
        with Client(url, os.environ.get(API_KEY) or None) as client:
            found = client.metadata(name, version=version, label=label)
            number, served = found.model_spec.version, found.metadata
            columns, labels, target = served.columns, served.classes, served.target
            if target is None:
                raise UserError(f"the model {name!r} of {url} takes images, not tables. {_NAME_IMAGES}")
            if labels is None:
                raise UserError(f"{url} does not say which classes the model {name!r} has. Update highway-keras there.")
            places = {one: place for place, one in enumerate(labels)}

            def ask(rows: np.ndarray) -> Outputs:
                given = [decode(row, columns) for row in rows]
                # The probabilities of classes beyond the limit of a request count as 0.
                count = min(len(labels) or 1, MOST_CLASSES)
                # Other versions may have other columns and classes.
                answer = client.predict(name, rows=given, top=count, version=number)
                if not labels:
                    return {VALUE: np.array([[one.value] for one in answer.predictions], np.float32)}
                probabilities = np.zeros((len(rows), len(labels)), np.float32)
                for row, prediction in zip(probabilities, answer.predictions, strict=True):
                    row[[places[one.label] for one in prediction.top]] = [one.probability for one in prediction.top]
                return {PROBABILITIES: probabilities}

            more = served.multi_label, served.label_separator
            yield number, TableModel(columns, target, labels, None, ask, REQUEST, *more)
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
        UserError: see `pipelines.data.own.new_rows.read`, or the model computes NaN.

    Example:
        predict(model, Path("houses.csv")).score()  # "MAE 0.3129, R² 0.841"
    """
    rows = read_rows(model, path)
    start = time.perf_counter()
    parts = [batch.outputs for batch in batches(model, rows, path)]
    outputs = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return TablePredictions(model, rows, outputs, time.perf_counter() - start)


def read_rows(model: TableModel, path: Path) -> TableRows:
    """Reads the rows of a file as a model takes them; see `pipelines.data.own.new_rows.read`."""
    return read(
        path, model.columns, model.target, model.labels, multi_label=model.multi_label, separator=model.separator
    )


def batches(model: TableModel, rows: TableRows, path: Path, first: int = 0) -> Iterator[TablePredictions]:
    """Predicts rows batch by batch.

    Args:
        model: the model.
        rows: rows of a file.
        path: the file, for messages.
        first: number of rows of the file before these, for messages.

    Yields:
        The predictions of each batch, without their time.

    Raises:
        UserError: the model computes NaN.
    """
    for start in range(0, len(rows.values), model.batch):
        part = slice(start, start + model.batch)
        outputs = model.predict(rows.values[part])
        if wrong := not_finite(outputs):
            place = min(wrong)
            raise UserError(not_finite_message(wrong[place], f"row {first + start + place + 1} of {path}"))
        truth = None if rows.truth is None else rows.truth[part]
        yield TablePredictions(model, TableRows(rows.values[part], truth, ()), outputs, 0.0)


def columns(found: TablePredictions, count: int, explain: bool, first: int = 0) -> dict[str, pa.Array]:
    """Returns the columns of a file of predictions: number of the row, from 1, prediction, and true target, if known.

    Args:
        found: predictions of some rows.
        count: number of most probable classes.
        explain: whether to add the mean gate of each layer.
        first: number of rows before these.
    """
    model, readable = found.model, np.ones(len(found), bool)
    made = {"row": pa.array(first + np.arange(1, len(found) + 1))}
    if VALUE in found.outputs:
        made[VALUE] = pa.array(found.outputs[VALUE][:, 0])
    else:
        probabilities = found.outputs[PROBABILITIES]
        made |= class_columns(probabilities, model.labels, count, readable, multi_label=model.multi_label)
    if explain:
        made[GATE_MEANS] = lists(found.outputs[GATE_MEANS], readable)
    if (truth := found.rows.truth) is not None and not model.labels:
        made["true"] = pa.array(truth, pa.float64(), from_pandas=True)
    elif truth is not None:
        kind = pa.list_(pa.string()) if model.multi_label else pa.string()
        made["true"] = pa.array(_names(truth, model.labels), kind)
    return made


def table(found: TablePredictions, count: int) -> Table:
    """Formats the first predictions as a table: row, classes or value; and true target."""
    target, truth, labels = escape(found.model.target), found.rows.truth, found.model.labels
    made = Table()
    made.add_column("row", justify="right")
    for name in class_headings(target, found.model.multi_label) if labels else [target]:
        made.add_column(name, justify="left" if labels and name != "probability" else "right")
    if truth is not None:
        made.add_column(f"true {target}", justify="left" if labels else "right")
        shown = truth[:SHOWN]
        true = _names(shown, labels) if labels else [None if np.isnan(one) else f"{one:.6g}" for one in shown]
        if found.model.multi_label:
            true = [None if one is None else ", ".join(one) or "none" for one in true]
    for place, prediction in enumerate(found.predictions(count, SHOWN)):
        value = prediction.value
        cells = class_cells(prediction) if value is None else [f"[bold]{value:.6g}[/]"]
        made.add_row(f"{place + 1:,}", *cells, *([escape(true[place] or "")] if truth is not None else []))
    return made


def _names(truth: np.ndarray, labels: Sequence[str]) -> list[Any]:
    """Returns the name of each true class, or lists of names; None for missing ones, and for other classes."""
    if truth.ndim == 2:
        return [None if np.isnan(row).any() else [labels[one] for one in np.flatnonzero(row).tolist()] for row in truth]
    return [labels[int(one)] if one >= 0 else None for one in truth]
