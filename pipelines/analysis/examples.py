"""Opens a trained net and reads preprocessed examples of its data in batches."""

from dataclasses import dataclass, replace
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console

from highway_keras.analysis import Layout, highway_layers
from pipelines.core.config import Config, Subset
from pipelines.core.errors import UserError
from pipelines.core.run import DataRecord, Run, Weights, load_model
from pipelines.data import batches, preprocess, sources
from pipelines.data.own import prepare as own
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import DataInfo, Examples, Split
from pipelines.data.stream import Stream

# Maximum number of values per batch, so that the outputs of the intact net take at most 100 MB, and maximum number of
# examples, beyond which there is no gain.
VALUES, LARGEST = 2**24, 500


@dataclass(frozen=True)
class OpenedNet:
    """A trained net, with everything needed to read examples for it."""

    model: keras.Model
    layout: Layout
    """Layout of its highway layers."""
    fitted: Fitted
    """The preprocessing used in training."""
    config: Config
    """Configuration that names the data, the validation split and the subset."""
    data_dir: Path | None
    """Folder of prepared data; None for the TFDS default."""
    info: DataInfo
    """Description of the data."""


@dataclass(frozen=True)
class Part:
    """Preprocessed examples of a split."""

    name: str
    """Name and version of the data."""
    split: Split
    """The split."""
    of: int
    """Number of examples in the split."""
    count: int
    """Number of examples that are read."""
    batches: tf.data.Dataset
    """Pairs (x, y), where y is a one-hot class, or several, or the target of a regression."""
    labels: tuple[str, ...]
    """Names of the classes; none for regression, and if an example may have several."""
    multi_label: bool = False
    """True if y has 1 for each class of an example."""


def opened(run: Run, weights: Weights = "final", *, data: str | None = None, data_dir: Path | None = None) -> OpenedNet:
    """Opens the net of a run, for the run's own data or other data.

    Args:
        run: the run.
        weights: weights after the last step, or of the best epoch.
        data: a data set; None for the run's own.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        The net; no examples are read yet.

    Raises:
        UserError: the run lacks these weights or highway layers, or the data does not fit or, for the run's own data
            set, differs from what it was trained on.

    Example:
        net = opened(open_run(Path("runs/mnist_dense_50")))
        train = part(net, "train")
    """
    model = load_model(run, weights)
    fitted = preprocess.load(run.path / "preprocess.npz")
    try:
        layout, _ = highway_layers(model, np.zeros((1, *run.record.data.inputs), "float32"))
    except ValueError as error:
        raise UserError(f"{run.path} cannot be analysed. {error}. Analyse a highway net.") from error
    config = run.config
    if data not in (None, config.data):
        # The run's validation split and subset apply only to its own data.
        config = config.model_copy(update={"data": data, "validation": 0, "subset": Subset()})
    return OpenedNet(model, layout, fitted, config, data_dir, _described(run, config, data_dir))


def _described(run: Run, config: Config, data_dir: Path | None) -> DataInfo:
    is_own, record = config.data == run.config.data, run.record.data
    if is_own:
        own.restore(config, Console(stderr=True))
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    if is_own and (info.version, info.labels, info.shape) != (record.version, record.labels, record.shape):
        raise UserError(
            f"{run.path} was trained on {record.name} {record.version}, but the data found is {info.name} "
            f"{info.version}. Point --data-dir at the former, or name other data with --data."
        )
    if _form(info) != _form(record):
        raise UserError(f"the net of {run.path} takes {_form(record)}. {info.name} has {_form(info)}: name other data.")
    return info


def _form(data: DataInfo | DataRecord) -> str:
    answer = f"{len(data.labels)} classes" if data.labels else "a number to predict"
    several = ", any number of them for each example" if data.multi_label else ""
    return f"inputs of {'x'.join(map(str, data.shape))} with {answer}{several}"


def part(net: OpenedNet, split: Split, limit: int | None = None) -> Part:
    """Reads examples of a split.

    Args:
        net: the result of `opened`.
        split: "train", "validation" or "test".
        limit: maximum number of examples, evenly spaced over the split; None for all.

    Raises:
        UserError: there is no such split.
    """
    config, info = net.config, net.info
    examples = sources.load(config.data, split, net.data_dir, config.validation, config.subset)
    chosen = spaced(examples, limit)
    made = batches.evaluation(chosen, net.fitted, batch_size=batch_size(net.layout), classes=len(info.labels))
    name, labels = f"{info.name} {info.version}", () if info.multi_label else info.labels
    return Part(name, split, len(examples), len(chosen), made, labels, info.multi_label)


def batch_size(layout: Layout) -> int:
    """Returns the batch size for nets of this layout."""
    return max(1, min(LARGEST, VALUES // layout.values))


def spaced(examples: Examples | Stream, limit: int | None) -> Examples | Stream:
    """Takes at most `limit` examples, evenly spaced, because data may be sorted by class."""
    count = len(examples)
    if limit is None or limit >= count:
        return examples
    if isinstance(examples, Examples):
        places = np.arange(limit) * count // limit
        return Examples(examples.images[places], examples.labels[places])
    # An example is taken wherever the number of examples that should have been taken grows.
    taken = examples.records.enumerate(1).filter(lambda place, _: place * limit // count > (place - 1) * limit // count)
    return replace(examples, records=taken.map(lambda _, record: record), count=limit)
