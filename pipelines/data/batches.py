"""Batches for training and evaluation, as tf.data."""

import tensorflow as tf

from pipelines.core.config import Augment
from pipelines.core.errors import UserError
from pipelines.data.augment import draw, move
from pipelines.data.order import examples_at, positions
from pipelines.data.parallel import CALLS, READY, fixed
from pipelines.data.preprocess import Fitted, apply
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream


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
    shard: tuple[int, int] = (0, 1),
) -> tf.data.Dataset:
    """The batches of a training run, or of its rest: the batch of a step depends on the seed and the step alone.

    Args:
        examples: the training examples.
        fitted: their preprocessing.
        augment: random changes to each image.
        batch_size: examples a step, over all hosts; a batch may reach over the end of an epoch.
        seed: decides the order and the changes.
        first_step: where to start; the batches are those that a start at 0 would have reached.
        steps: the step to stop before, counted from 0 as well.
        classes: length of the one-hot labels; 0 for targets, which stay as they are.
        shard: (index, count): of each batch only the slice of this host, out of `count` equal ones.

    Returns:
        A dataset of `steps - first_step` pairs: images float32 [b, h, w, c], labels float32 [b, classes]; or vectors
        float32 [b, f], targets float32 [b, 1].

    Raises:
        UserError: the batch cannot be divided among the hosts.

    Example:
        train = training(examples, fitted, augment=config.augment, batch_size=100, seed=0, steps=600, classes=10)
        model.fit(train)
    """
    host, hosts = shard
    if batch_size % hosts:
        raise UserError(f"a batch of {batch_size} cannot be divided among {hosts} hosts. Take a multiple of {hosts}.")
    start, stop = host * batch_size // hosts, (host + 1) * batch_size // hosts
    seed %= 2**63  # The random operations take 64 bits.

    def finish(step: tf.Tensor, images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        x = apply(fitted, images)
        if augment.pad or augment.mirror:
            # Drawn for the whole batch, so that a host's images change in the same way however many hosts there are.
            x = move(x, draw(batch_size, augment, tf.stack([tf.constant(seed, tf.int64), step])).rows(start, stop))
        return x, _targets(labels, classes)

    if isinstance(examples, Stream):
        batches = _from_disk(examples, range(first_step, steps), batch_size, slice(start, stop), seed)
    else:
        batches = _from_memory(examples, range(first_step, steps), batch_size, slice(start, stop), seed)
    return batches.map(finish, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())


def evaluation(examples: Examples | Stream, fitted: Fitted, *, batch_size: int, classes: int) -> tf.data.Dataset:
    """All examples once, in order; the last batch holds what is left.

    Args:
        examples: the examples of a split.
        fitted: the preprocessing of the training.
        batch_size: examples a batch.
        classes: length of the one-hot labels; 0 for targets, which stay as they are.

    Returns:
        A dataset of pairs as in `training`.

    Example:
        model.evaluate(evaluation(load("cifar10", "test"), fitted, batch_size=500, classes=10))
    """

    def finish(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        return apply(fitted, images), _targets(labels, classes)

    if isinstance(examples, Stream):
        batches = examples.decoded(examples.records).batch(batch_size)
        batches = batches.apply(tf.data.experimental.assert_cardinality(-(-len(examples) // batch_size)))
    else:
        images, labels = _tensors(examples)
        starts = tf.data.Dataset.range(0, len(examples), batch_size)
        batches = starts.map(lambda at: (images[at : at + batch_size], labels[at : at + batch_size]))
    return batches.map(finish, num_parallel_calls=CALLS).prefetch(READY).with_options(fixed())


def _targets(labels: tf.Tensor, classes: int) -> tf.Tensor:
    return tf.one_hot(labels, classes) if classes else labels


def _from_memory(examples: Examples, steps: range, batch_size: int, part: slice, seed: int) -> tf.data.Dataset:
    """Step, images uint8 and labels of each step."""
    images, labels = _tensors(examples)

    def gather(step: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        chosen = examples_at(positions(step, batch_size)[part], len(examples), seed)
        return step, tf.gather(images, chosen), tf.gather(labels, chosen)

    return _numbers(steps).map(gather, num_parallel_calls=CALLS)


def _from_disk(examples: Stream, steps: range, batch_size: int, part: slice, seed: int) -> tf.data.Dataset:
    """The same; what comes before the first step in its epoch is read, but not decoded."""
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
    # In the memory of the host: a GPU has better use for its own.
    with tf.device("/cpu:0"):
        return tf.constant(examples.images), tf.constant(examples.labels)
