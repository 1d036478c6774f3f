"""Batches for training and evaluation as tf.data, and their throughput."""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
import tensorflow as tf

from pipelines.core.config import Augment, Config
from pipelines.core.errors import UserError
from pipelines.core.run import TableColumn
from pipelines.data.augment import augment as augmented
from pipelines.data.order import Members, balanced_at, examples_at, positions, shuffled
from pipelines.data.parallel import CALLS, READY, fixed
from pipelines.data.preprocess import Fitted, apply, fit, standardized
from pipelines.data.rand_augment import rand_augmented
from pipelines.data.sources import Examples, describe, load
from pipelines.data.stream import Stream

# Returns the examples at positions of the endless sequence of training.
Order = Callable[[tf.Tensor], tf.Tensor]
WARM_UP, SECONDS = 0.5, 3.0
# AutoGraph would translate each function that `map` traces, and every function called there, to convert branches on
# tensors. There are none, and it would take a second at the start of training.
unconverted = tf.autograph.experimental.do_not_convert


def training(
    examples: Examples | Stream,
    fitted: Fitted,
    *,
    augment: Augment,
    batch_size: int,
    seed: int,
    first_step: int = 0,
    steps: int,
    classes: int,
    class_weights: np.ndarray | None = None,
    sampling: Literal["all", "balanced"] = "all",
    size: tuple[int, int] | None = None,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns the batches of a training run. Each depends only on the seed and the step.

    Args:
        examples: the training examples.
        fitted: their preprocessing.
        augment: augmentation settings.
        batch_size: examples per step over all hosts; a batch may cross the end of an epoch.
        seed: seed of the order and the augmentation.
        first_step: the step to start at; batches are the same as in a run from step 0.
        steps: the step to stop before, also counted from 0.
        classes: length of the one-hot labels; 0 for the targets of a regression, which are standardized for a table.
        class_weights: weight of each class, float [classes]; the weight of a mixed image is mixed like its label. None
            leaves all examples equal.
        sampling: "all" shows every example once per epoch, "balanced" each class equally often.
        size: height and width to which images are shrunk after augmentation, whose settings in pixels are those of the
            full size; None leaves them as they are.
        shard: (index, count) of this host; it receives one of `count` equal slices of each batch.

    Returns:
        A dataset of `steps - first_step` pairs: images float32 [b, h, w, c], labels float32 [b, classes]; or vectors
        float32 [b, f], targets float32 [b, 1]. With `class_weights`, triples: the weights float32 [b] come third.

    Raises:
        UserError: the batch size is not a multiple of the number of hosts (with mixup or CutMix: of twice the number);
            or balanced examples would have to be streamed from disk.

    Example:
        train = training(examples, fitted, augment=config.augment, batch_size=100, seed=0, steps=600, classes=10)
        model.fit(train)
    """
    host, hosts = shard
    if batch_size % hosts:
        raise UserError(f"a batch of {batch_size} cannot be divided among {hosts} hosts. Use a multiple of {hosts}.")
    start, stop = host * batch_size // hosts, (host + 1) * batch_size // hosts
    mixes = bool(augment.mixup or augment.cutmix)
    if mixes and hosts > 1 and start % 2 + stop % 2:
        raise UserError(f"{hosts} hosts cannot mix images of a batch of {batch_size}. Use a multiple of {2 * hosts}.")
    seed %= 2**63  # Random operations take signed 64-bit seeds.

    @unconverted
    def finish(step: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, ...]:
        drawn_by = tf.stack([tf.constant(seed, tf.int64), step])
        if augment.rand_augment:
            images = rand_augmented(images, augment, drawn_by, count=batch_size, part=slice(start, stop))
        x, y = apply(fitted, images), _targets(fitted, labels, classes)
        if augment != Augment():
            x, y = augmented(x, y, augment, drawn_by, count=batch_size, part=slice(start, stop))
        if size is not None:
            x = tf.image.resize(x, size, antialias=True)
        return (x, y) if class_weights is None else (x, y, tf.linalg.matvec(y, tf.constant(class_weights, y.dtype)))

    if isinstance(examples, Stream):
        if sampling == "balanced":
            raise UserError(
                f"balanced sampling needs all examples in memory, and {len(examples):,} are streamed from "
                f"{examples.folder}. Use --class-weights balanced."
            )
        batches = _from_disk(examples, range(first_step, steps), batch_size, slice(start, stop), seed)
    else:
        if sampling == "balanced":
            order = _balanced(Members.of(examples.labels), seed, mixes=mixes)
        else:
            order = partial(examples_at, count=len(examples), seed=seed)
        batches = _from_memory(examples, range(first_step, steps), batch_size, slice(start, stop), order)
    return batches.map(finish, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())


def of_config(
    config: Config,
    examples: Examples | Stream,
    fitted: Fitted,
    *,
    classes: int,
    steps: int,
    first_step: int = 0,
    size: tuple[int, int] | None = None,
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """Returns the batches with which a configuration is trained; see `training`.

    Args:
        config: augmentation, batch size, seed, class weights and sampling.
        examples: the training examples.
        fitted: their preprocessing.
        classes: length of the one-hot labels; 0 for the targets of a regression, which are standardized for a table.
        steps: the step to stop before.
        first_step: the step to start at.
        size: height and width to which images are shrunk; None leaves them as they are.
        shard: (index, count) of this host.
    """
    return training(
        examples,
        fitted,
        augment=config.augment,
        batch_size=config.batch_size,
        seed=config.seed,
        first_step=first_step,
        steps=steps,
        classes=classes,
        sampling=config.sampling,
        class_weights=balanced(examples.labels, classes) if config.class_weights == "balanced" else None,
        size=size,
        shard=shard,
    )


def fit_preprocess(config: Config, examples: Examples | Stream, columns: Sequence[TableColumn]) -> Fitted:
    """Fits the preprocessing of a configuration to its training examples.

    Args:
        config: the settings.
        examples: the training examples.
        columns: columns of a table; none for other data.
    """
    labels = examples.labels if columns else None
    return fit(config.preprocess, examples.images, columns, labels)


def balanced(labels: np.ndarray, classes: int) -> np.ndarray:
    """Computes weights of classes whose sums over the examples of each class are equal, and whose mean is 1.

    Args:
        labels: class of each training example, int [n].
        classes: number of classes.

    Returns:
        float64 [classes]; 0 for a class without examples.

    Example:
        balanced(np.array([0, 0, 0, 1]), 2)  # [0.667, 2.0]
    """
    counts = np.bincount(labels, minlength=classes)
    return np.where(counts > 0, len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1)), 0.0)


def evaluation(examples: Examples | Stream, fitted: Fitted, *, batch_size: int, classes: int) -> tf.data.Dataset:
    """Returns all examples once, in order; the last batch holds the remainder.

    Args:
        examples: the examples of a split.
        fitted: the preprocessing used in training.
        batch_size: examples per batch.
        classes: length of the one-hot labels; 0 for the targets of a regression, which are standardized for a table.

    Returns:
        A dataset of pairs as in `training`.

    Example:
        model.evaluate(evaluation(load("cifar10", "test"), fitted, batch_size=500, classes=10))
    """

    @unconverted
    def finish(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return apply(fitted, images), _targets(fitted, labels, classes)

    if isinstance(examples, Stream):
        batches = examples.decoded(examples.records).batch(batch_size)
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-len(examples) // batch_size)))
    else:
        images, labels = _tensors(examples)
        starts = tf.data.Dataset.range(0, len(examples), batch_size)
        batches = starts.map(unconverted(lambda at: (images[at : at + batch_size], labels[at : at + batch_size])))
    return batches.map(finish, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())


def throughput(batches: tf.data.Dataset, seconds: float | None = None) -> float:
    """Measures the throughput of an input pipeline alone.

    Args:
        batches: pairs of images [b, ...] and labels, more than can be consumed in the given time.
        seconds: duration after the warm-up; None for 3 s.

    Returns:
        Images per second.

    Raises:
        ValueError: the batches ran out.

    Example:
        throughput(training(examples, fitted, augment=augment, batch_size=100, seed=0, steps=10**9, classes=10))
    """
    iterator = iter(batches)
    _count(iterator, WARM_UP)
    start = time.perf_counter()
    images = _count(iterator, SECONDS if seconds is None else seconds)
    return images / (time.perf_counter() - start)


def config_throughput(config: Config, data_dir: Path | None = None) -> float:
    """Measures the throughput of the training input of a configuration alone.

    Args:
        config: data, preprocessing, augmentation and batch size.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        Images per second.

    Raises:
        UserError: the data are not available.
    """
    info = describe(config.data, data_dir, config.validation)
    examples = load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = fit_preprocess(config, examples, info.columns)
    return throughput(of_config(config, examples, fitted, classes=len(info.labels), steps=2**40))


def _count(batches: Iterator[tuple[tf.Tensor, tf.Tensor]], seconds: float) -> int:
    images, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        batch = next(batches, None)
        if batch is None:
            raise ValueError(f"the batches ran out before the {seconds} s were over")
        images += int(batch[0].shape[0])
    return images


def _targets(fitted: Fitted, labels: tf.Tensor, classes: int) -> tf.Tensor:
    if classes and labels.shape.rank == 2:
        return tf.cast(labels, tf.float32)
    return tf.one_hot(labels, classes) if classes else standardized(fitted, labels)


def _balanced(members: Members, seed: int, *, mixes: bool) -> Order:
    """Returns the order of balanced classes, which depends on whether neighbours are mixed."""
    return lambda places: balanced_at(shuffled(places, members, seed) if mixes else places, members, seed)


def _from_memory(examples: Examples, steps: range, batch_size: int, part: slice, order: Order) -> tf.data.Dataset:
    """Yields the number, the images (uint8) and the labels of each step."""
    images, labels = _tensors(examples)

    @unconverted
    def gather(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        indices = order(positions(step, batch_size)[part])
        return step, tf.gather(images, indices), tf.gather(labels, indices)

    return _numbers(steps).map(gather, num_parallel_calls=CALLS)


def _from_disk(examples: Stream, steps: range, batch_size: int, part: slice, seed: int) -> tf.data.Dataset:
    """Yields the steps of `_from_memory` from disk; earlier records of the first epoch are read but not decoded."""
    epoch, place = divmod(steps.start * batch_size, len(examples))
    epochs = tf.data.Dataset.range(epoch, steps.stop * batch_size // len(examples) + 1)
    records = epochs.flat_map(lambda number: examples.epoch(number, seed)).skip(place)
    batches = records.batch(batch_size, drop_remainder=True).take(len(steps))
    mine = batches.map(lambda images, labels: (images[part], labels[part])).unbatch()
    decoded = examples.decoded(mine).batch(part.stop - part.start, drop_remainder=True)
    numbered = tf.data.Dataset.zip(_numbers(steps), decoded)
    return numbered.apply(tf.data.experimental.assert_cardinality(len(steps))).map(lambda step, batch: (step, *batch))


def _numbers(steps: range) -> tf.data.Dataset:
    return tf.data.Dataset.range(steps.start, steps.stop)


def _tensors(examples: Examples) -> tuple[tf.Tensor, tf.Tensor]:
    # Kept in host memory, to save GPU memory.
    with tf.device("/cpu:0"):
        return tf.constant(examples.images), tf.constant(examples.labels)
