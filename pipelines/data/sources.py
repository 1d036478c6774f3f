"""Opens a data set: its description, and its examples as arrays or streams.

The data determine the task: a label means classification, a list of labels any number of classes, and vectors with a
numeric target mean regression.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf
import tensorflow_datasets as tfds

from pipelines.core.config import Subset
from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen, read
from pipelines.core.run import TableColumn, net_inputs
from pipelines.data import catalog
from pipelines.data.catalog import prepare
from pipelines.data.parallel import fixed
from pipelines.data.selection import PUBLISHED, draw_published, exchanged, subset
from pipelines.data.stream import Stream

Split = Literal["train", "validation", "test"]
Task = Literal["classification", "multi_label", "regression"]
Choice = Callable[[np.ndarray], np.ndarray]
"""Function from the labels of the eligible examples to the indices of the selected ones."""

# Bytes of decoded images above which they are streamed from disk. Below, training holds two copies in memory (NumPy and
# TensorFlow), and briefly a third when it starts.
MEMORY = 2 * 2**30
READ = 1000
ALL = Subset()
# Channels of images that nets and endpoints take: grey, and red, green and blue.
CHANNELS = (1, 3)
# Feature with any number of classes.
LABELS = "labels"
# File with a `TableForm`, next to the files of TFDS.
COLUMNS = "columns.json"


class TableForm(Frozen):
    """The columns of a prepared table, stored next to its files."""

    target: str
    """Column that is predicted."""
    columns: tuple[TableColumn, ...]
    """The others, in the order of the features."""


class SizesError(UserError):
    """The images of a data set have different sizes, or an alpha channel; they can be prepared."""


@dataclass(frozen=True)
class DataInfo:
    """Description of a data set."""

    name: str
    version: str
    shape: tuple[int, ...]
    """Height, width and channels of the images, or the length of the vectors."""
    labels: tuple[str, ...]
    """Class names by class number; empty for regression."""
    counts: dict[str, int]
    """Number of examples used for training (without held-out ones), validation and test."""
    columns: tuple[TableColumn, ...] = ()
    """Columns of a table of numbers; none for other data."""
    target: str | None = None
    """Column of a table of numbers that is predicted; None for other data."""
    multi_label: bool = False
    """True if an example may have any number of the classes."""

    @property
    def task(self) -> Task:
        """Task of a net: to predict one class, any number of classes, or a number."""
        return "multi_label" if self.multi_label else "classification" if self.labels else "regression"

    @property
    def inputs(self) -> tuple[int, ...]:
        """Shape of an input of the net."""
        return net_inputs(self.shape, self.columns)


@dataclass(frozen=True)
class Examples:
    """Decoded examples in shared, read-only arrays."""

    images: np.ndarray
    """Images, uint8 [n, h, w, c]; or vectors, float32 [n, f]."""
    labels: np.ndarray
    """Classes, int64 [n]; 1 for each of several classes and 0 for the others, uint8 [n, classes]; or targets, float32
    [n, 1]."""

    def __len__(self) -> int:
        return len(self.labels)


def describe(data: str, data_dir: Path | None = None, validation: int = 0, part: Subset = ALL) -> DataInfo:
    """Describes a data set, preparing it first if necessary.

    Args:
        data: TFDS name ("mnist_5k", "cifar10", "name/config:version"), or the folder of a prepared data set.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
        validation: number of training examples to hold out; ignored if the data set has a validation split.
        part: subset of the remaining examples to use.

    Returns:
        Name, version, shape, classes, and the numbers of examples that `load` returns.

    Raises:
        UserError: the data are not available, are neither labelled images of one size nor vectors with labels or
            targets, or have too few examples.

    Example:
        describe("mnist_5k").counts  # {"train": 4000, "validation": 500, "test": 500}
    """
    return summary(open_builder(data, data_dir), validation, part)


def load(
    data: str,
    split: Split,
    data_dir: Path | None = None,
    validation: int = 0,
    part: Subset = ALL,
    *,
    memory: int = MEMORY,
) -> Examples | Stream:
    """Loads the examples of one split.

    Validation examples come from the validation split of the data set, or else are a fixed, stratified sample of its
    training split. Only `split="test"` reads the test split.

    Args:
        data: TFDS name, or the folder of a prepared data set.
        split: "train" (without the held-out examples), "validation" or "test".
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
        validation: number of training examples to hold out; ignored if the data set has a validation split.
        part: subset of the remaining examples to use.
        memory: bytes of decoded images above which they are streamed. Vectors are always loaded.

    Returns:
        Arrays, or a `Stream` if the decoded split exceeds `memory`.

    Raises:
        UserError: the data are not available, are damaged, lack the split, or `describe` refuses them.

    Example:
        train = load("cifar10", "train", validation=5000)
        held_out = load("cifar10", "validation", validation=5000)  # cached
    """
    builder = open_builder(data, data_dir)
    info = summary(builder, validation, part)
    if not info.counts[split]:
        # Targets are not held out at random, see `summary`.
        holds_out = split == "validation" and info.labels
        hint = " Hold out some of the training split: --validation N." if holds_out else ""
        raise UserError(f"the data set '{data}' has no {split} examples.{hint}")
    splits = builder.info.splits
    source = split if split in splits else "train"
    count = 0 if source != "train" or "validation" in splits else validation
    choose = _choice(builder, split, part)
    if len(info.shape) > 1 and splits[source].num_examples * int(np.prod(info.shape)) > memory:
        return _streamed(builder, source, count, rest=source == split, choose=choose)
    remaining, held = _decoded(str(builder.data_dir), source, count)
    whole = remaining if source == split else held
    return whole if choose is None else _selected(whole, choose(whole.labels))


def open_builder(data: str, data_dir: Path | None) -> tfds.core.DatasetBuilder:
    """Returns the TFDS builder of a data set, preparing it first if necessary; errors as for `describe`."""
    return catalog.find(data, data_dir) or prepare(data, data_dir)


def summary(builder: tfds.core.DatasetBuilder, validation: int = 0, part: Subset = ALL) -> DataInfo:
    """Describes the data set of a TFDS builder; arguments and errors as for `describe`."""
    shape, labels, multi_label = _checked(builder)
    sizes = {name: int(split.num_examples) for name, split in builder.info.splits.items()}
    if "train" not in sizes:
        raise UserError(f"'{builder.name}' has no split 'train'. It has: {', '.join(sizes) or 'none'}.")
    count = 0 if "validation" in sizes else validation
    if count >= sizes["train"]:
        raise UserError(
            f"validation must be less than {sizes['train']}, the training examples of '{builder.name}'. "
            f"Received: validation={validation}."
        )
    if count and not labels:
        raise UserError(
            f"'{builder.name}' has no split 'validation', and only labelled images are held out at random: targets may "
            f"be a time series. Received: validation={validation}."
        )
    counts = {
        "train": sizes["train"] - count,
        "validation": sizes.get("validation", count),
        "test": sizes.get("test", 0),
    }
    if part.seed is not None and builder.name not in PUBLISHED:
        raise UserError(
            "subset.seed draws from the order in which the data were published, which is known for "
            f"{', '.join(PUBLISHED)} only. Leave it out for a stratified subset. "
            f"Received: '{builder.name}', subset.seed={part.seed}."
        )
    for split, taken in part.model_dump(exclude_none=True, exclude={"seed"}).items():
        if not labels:
            raise UserError(
                f"only labelled images are drawn at random: the targets of '{builder.name}' may be a time series. "
                f"Received: subset.{split}={taken}."
            )
        if taken > counts[split]:
            raise UserError(
                f"subset.{split} must be at most {counts[split]}, the {split} examples of '{builder.name}'. "
                f"Received: subset.{split}={taken}."
            )
        counts[split] = taken
    form = Path(builder.data_dir) / COLUMNS
    table = read(form, TableForm) if form.is_file() else None
    columns, target = (table.columns, table.target) if table else ((), None)
    return DataInfo(builder.name, str(builder.version), shape, labels, counts, columns, target, multi_label)


def _checked(builder: tfds.core.DatasetBuilder) -> tuple[tuple[int, ...], tuple[str, ...], bool]:
    """Returns input shape, class names, and whether an example may have any number of classes.

    Refuses data other than labelled images of one size or vectors.
    """
    features = builder.info.features
    named = dict(features.items()) if isinstance(features, tfds.features.FeaturesDict) else {"example": features}
    image, label = named.get("image"), named.get("label")
    multi_label = label is None and isinstance(named.get(LABELS), tfds.features.Sequence)
    if multi_label:
        label = named[LABELS].feature
    if _is_vector(named.get("features")):
        if _is_vector(named.get("target")) and named["target"].shape == (1,):
            return named["features"].shape, (), False
        if isinstance(label, tfds.features.ClassLabel):
            return named["features"].shape, tuple(label.names), multi_label
    if not isinstance(image, tfds.features.Image) or not isinstance(label, tfds.features.ClassLabel):
        has = ", ".join(f"{name} ({type(feature).__name__})" for name, feature in named.items())
        raise UserError(
            f"the data set '{builder.name}' must have the features image (Image) and label (ClassLabel), or features "
            "(Tensor, float32 [n]) and label, or for regression features (Tensor, float32 [n]) and target (Tensor, "
            f"float32 [1]). {LABELS} (Sequence of ClassLabel) may stand in place of label. "
            f"It has: {has}."
        )
    if image.np_dtype != np.uint8:
        raise UserError(
            f"the images of '{builder.name}' must be uint8. Received: dtype={np.dtype(image.np_dtype).name}."
        )
    if None in image.shape:
        raise SizesError(
            f"the images of '{builder.name}' have different sizes: {image.shape}, where None is a variable size. "
            f"`highway data prepare {builder.name} --image-size 64` writes a data set with images of one size, whose "
            "folder can be named instead."
        )
    if image.shape[2] not in CHANNELS:
        raise SizesError(
            f"the images of '{builder.name}' have {image.shape[2]} channels. Expected 1 (grey) or 3 (colours). "
            f"`highway data prepare {builder.name} --image-size {image.shape[0]} {image.shape[1]}` writes a data set "
            "without transparency, whose folder can be named instead."
        )
    return image.shape, tuple(label.names), multi_label


def _is_vector(feature: object) -> bool:
    return (
        isinstance(feature, tfds.features.Tensor)
        and feature.np_dtype == np.float32
        and len(feature.shape) == 1
        and feature.shape[0] is not None
    )


@functools.lru_cache(maxsize=1)  # Train and validation share files, whose decoding takes seconds.
def _decoded(folder: str, source: str, count: int) -> tuple[Examples, Examples]:
    """Decodes a split of the files: the remaining examples, and the `count` examples held out for validation."""
    builder = tfds.builder_from_directory(folder)
    total = builder.info.splits[source].num_examples
    features = builder.info.features
    shape, classes, multi_label = _checked(builder)
    inputs, outputs = "image" if len(shape) > 1 else "features", "label" if classes else "target"
    images = np.empty((total, *features[inputs].shape), features[inputs].np_dtype)
    records = _read(builder, source)
    if multi_label:
        # Lists of different lengths make no batch.
        records = records.map(lambda example: {inputs: example[inputs], outputs: _hot(example, len(classes))})
        labels = np.empty((total, len(classes)), np.uint8)
    else:
        labels = np.empty((total, *features[outputs].shape), features[outputs].np_dtype)
    start = 0
    try:
        for batch in tfds.as_numpy(records.batch(READ)):
            stop = start + len(batch[outputs])
            images[start:stop], labels[start:stop] = batch[inputs], batch[outputs]
            start = stop
    except tf.errors.OpError as error:
        raise catalog.damaged(Path(folder), error) from error
    left = total - count
    if count:
        # Swaps the held-out examples to the end, so that both parts are views and no GiBs are copied.
        low, high = exchanged(labels, count)
        for array in (images, labels):
            array[np.r_[low, high]] = array[np.r_[high, low]]
    images.flags.writeable = labels.flags.writeable = False
    return Examples(images[:left], labels[:left]), Examples(images[left:], labels[left:])


def _choice(builder: tfds.core.DatasetBuilder, split: Split, part: Subset) -> Choice | None:
    """Returns the function that selects examples of a split; None selects all."""
    count, seed = None if split == "validation" else getattr(part, split), part.seed
    if count is None:
        return None
    if seed is None:
        return lambda labels: subset(labels, count)
    sizes = {name: int(info.num_examples) for name, info in builder.info.splits.items()}
    return lambda _: draw_published(seed, split, count, sizes)


def _selected(whole: Examples, places: np.ndarray) -> Examples:
    """Copies selected examples."""
    images, labels = whole.images[places], whole.labels[places]
    images.flags.writeable = labels.flags.writeable = False
    return Examples(images, labels)


def _streamed(
    builder: tfds.core.DatasetBuilder, source: str, count: int, *, rest: bool, choose: Choice | None
) -> Stream:
    """Streams the chosen examples of a split of the files: of all but the held-out ones (`rest`), or of only those."""
    image = builder.info.features["image"]
    _, classes, multi_label = _checked(builder)
    records = _read(builder, source, decoders={"image": tfds.decode.SkipDecoding()})
    whole = Stream(
        records.map(
            lambda example: (example["image"], _hot(example, len(classes)) if multi_label else example["label"])
        ),
        image.decode_example,
        builder.info.splits[source].num_examples,
        Path(builder.data_dir),
    )
    if not count and choose is None:
        return whole
    labels = whole.labels
    places = np.arange(len(labels))
    if count:
        # Subsets depend on the order, which must be the same as in memory.
        low, high = exchanged(labels, count)
        places[np.r_[low, high]] = places[np.r_[high, low]]
    places = places[: len(labels) - count] if rest else places[len(labels) - count :]
    if choose is not None:
        places = places[choose(labels[places])]
    chosen = tf.constant(np.isin(np.arange(len(labels)), places))
    part = whole.records.enumerate().filter(lambda place, _: chosen[place]).map(lambda _, record: record)
    return replace(whole, records=part, count=len(places))


def _hot(example: dict[str, tf.Tensor], classes: int) -> tf.Tensor:
    """Returns 1 for each class of an example and 0 for the others, uint8 [classes]."""
    return tf.reduce_max(tf.one_hot(example[LABELS], classes, dtype=tf.uint8), axis=0)


def _read(builder: tfds.core.DatasetBuilder, source: str, **options: object) -> tf.data.Dataset:
    # Held-out examples depend on the file order. TFDS's own cache is not needed.
    config = tfds.ReadConfig(try_autocache=False, options=fixed())
    return builder.as_dataset(split=source, shuffle_files=False, read_config=config, **options)
