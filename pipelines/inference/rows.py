"""Prediction of image batches, and their rows in the table."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from pipelines.inference.net_inputs import NetInput, predicted
from serving.manifest import GATE_MEANS, PROBABILITIES
from serving.model import Model, above_half, top

# Columns of all classes that are present, and of the number of digits in an image.
LABELS, DIGITS = "labels", "digits"


@dataclass(frozen=True)
class RowBuilder:
    """Predicts images and builds their rows; thread-safe.

    Args:
        model: the model.
        count: number of classes per row.
        explain: whether to add the mean gate of each layer.
    """

    model: Model
    count: int
    explain: bool

    def schema(self, job: str) -> pa.Schema:
        """Returns the columns, with metadata about the model and the job.

        Args:
            job: description of the job as JSON.
        """
        numbers, manifest = pa.list_(pa.float32()), self.model.manifest
        columns = [
            ("path", pa.string()),
            ("error", pa.string()),
            ("label", pa.string()),
            ("probability", pa.float32()),
            ("top", pa.list_(pa.struct([("label", pa.string()), ("probability", pa.float32())]))),
            (PROBABILITIES, numbers),
            *([(LABELS, pa.list_(pa.string()))] if manifest.multi_label else []),
            *([(DIGITS, pa.int32())] if self.model.counts_digits else []),
        ]
        metadata = {
            "model": manifest.name,
            "version": str(manifest.version),
            "labels": "\n".join(manifest.labels),
            "job": job,
        }
        if self.explain:
            columns.append((GATE_MEANS, numbers))
            metadata["layers"] = "\n".join(manifest.gates or ())
        return pa.schema(columns, metadata=metadata)

    def __call__(self, inputs: Sequence[NetInput]) -> list[pa.Array]:
        """Returns the columns of a batch; all but path and error are null for images without a prediction."""
        rows, outputs = predicted(self.model, inputs)
        readable = np.array([row.image is not None for row in rows], bool)
        paths = pa.array([row.name for row in rows], pa.string())
        errors = pa.array([row.error for row in rows], pa.string())
        columns, manifest = [paths, errors], self.model.manifest
        columns += class_columns(
            outputs[PROBABILITIES], manifest.labels, self.count, readable, multi_label=manifest.multi_label
        ).values()
        if self.model.counts_digits:
            columns.append(pa.array([row.digits for row in rows], pa.int32()))
        if self.explain:
            columns.append(lists(outputs[GATE_MEANS], readable))
        return columns


def class_columns(
    probabilities: np.ndarray, labels: Sequence[str], count: int, readable: np.ndarray, *, multi_label: bool = False
) -> dict[str, pa.Array]:
    """Returns the columns of a prediction of classes by name: label, probability, top, probabilities, and labels.

    Args:
        probabilities: `[readable rows, classes]`.
        labels: names of the classes.
        count: number of most probable classes.
        readable: bool `[rows]`; the other rows are null.
        multi_label: whether to add labels: all classes with a probability above one half.
    """
    classes = top(probabilities, count)
    named = pa.array(labels).take(pa.array(classes.ravel()))
    best = np.take_along_axis(probabilities, classes, axis=-1)
    pairs = pa.StructArray.from_arrays([named, pa.array(best.ravel())], names=["label", "probability"])
    found = {
        "label": _spread(named.take(pa.array(np.arange(len(classes)) * classes.shape[1])), readable),
        "probability": _spread(pa.array(best[:, 0]), readable),
        "top": _lists(pairs, classes.shape[1], readable),
        PROBABILITIES: lists(probabilities, readable),
    }
    if multi_label:
        present = [above_half(row, labels) for row in probabilities.tolist()]
        found[LABELS] = _spread(pa.array(present, pa.list_(pa.string())), readable)
    return found


def lists(values: np.ndarray, readable: np.ndarray) -> pa.Array:
    """Returns a column of lists: the rows of a matrix, and null for unreadable rows."""
    return _lists(pa.array(values.ravel()), values.shape[1], readable)


def _spread(values: Any, readable: np.ndarray) -> pa.Array:
    """Spreads values over the readable rows, with null for the others."""
    return values.take(pa.array(np.cumsum(readable) - 1, mask=~readable))


def _lists(values: Any, width: int, readable: np.ndarray) -> pa.Array:
    """Spreads lists of equal width over the readable rows, with null for the others."""
    ends = np.concatenate([[0], np.cumsum(readable * width)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array(~readable))
