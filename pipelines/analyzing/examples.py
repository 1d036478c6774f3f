"""Which examples an analysis reads, as batches for the net."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.data import batches, sources
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import DataInfo, Examples, Split
from pipelines.data.stream import Stream
from pipelines.errors import UserError
from pipelines.run import Run


@dataclass(frozen=True)
class Part:
    """Some examples of one split, preprocessed."""

    name: str
    """Name and version of the data."""
    split: Split
    """Where the examples come from."""
    of: int
    """Examples of the whole split."""
    count: int
    """Those that are read."""
    batches: tf.data.Dataset
    """Pairs (x, y); y is one-hot, or the target."""
    labels: tuple[str, ...]
    """Names of the classes; none for regression."""


def described(run: Run, data: str | None, data_dir: Path | None) -> DataInfo:
    """What is known of the data that a run was trained on, or of other data for its net.

    Args:
        run: the run.
        data: a data set; None for the run's own.
        data_dir: where prepared data lies.

    Raises:
        UserError: if the data is not what the run was trained on, or the net cannot take it.
    """
    record = run.record.data
    info = sources.describe(data or run.config.data, data_dir, run.config.validation)
    if data is None and (info.version, info.labels, info.shape) != (record.version, record.labels, record.shape):
        raise UserError(
            f"the data is not what {run.path} was trained on: {info.name} {info.version}, and it was "
            f"{record.name} {record.version}. Point --data-dir at the first, or name other data with --data."
        )
    if (info.shape, len(info.labels)) != (record.shape, len(record.labels)):
        raise UserError(
            f"the net of {run.path} takes {_form(record.shape, record.labels)}. {info.name} has "
            f"{_form(info.shape, info.labels)}: take other data."
        )
    return info


def _form(shape: tuple[int, ...], labels: tuple[str, ...]) -> str:
    return f"inputs of {'x'.join(map(str, shape))} with {f'{len(labels)} classes' if labels else 'a number to predict'}"


def part(
    run: Run,
    info: DataInfo,
    split: Split,
    *,
    data: str | None,
    data_dir: Path | None,
    limit: int | None,
    fitted: Fitted,
    batch_size: int,
) -> Part:
    """Some examples of a split.

    Args:
        run: the run, whose configuration says what is held out for validation.
        info: from `described`.
        split: "train", "validation" or "test".
        data: see `described`.
        data_dir: see `described`.
        limit: at most as many examples, evenly spaced over the split; None takes all.
        fitted: the preprocessing of the training.
        batch_size: examples a batch.

    Raises:
        UserError: if there is no such split.
    """
    examples = sources.load(data or run.config.data, split, data_dir, run.config.validation)
    chosen = spaced(examples, limit)
    made = batches.evaluation(chosen, fitted, batch_size=batch_size, classes=len(info.labels))
    return Part(f"{info.name} {info.version}", split, len(examples), len(chosen), made, info.labels)


def spaced(examples: Examples | Stream, limit: int | None) -> Examples | Stream:
    """At most `limit` of some examples, evenly spaced, because data may lie in the order of its classes."""
    count = len(examples)
    if limit is None or limit >= count:
        return examples
    if isinstance(examples, Examples):
        places = np.arange(limit) * count // limit
        return Examples(examples.images[places], examples.labels[places])
    # An example is taken where the number of those to take has grown.
    taken = examples.records.enumerate(1).filter(lambda place, _: place * limit // count > (place - 1) * limit // count)
    return replace(examples, records=taken.map(lambda _, record: record), count=limit)
