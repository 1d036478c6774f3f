"""How fast batches come, when nothing waits for them but a clock."""

import time
from collections.abc import Iterator

import tensorflow as tf

WARM_UP, SECONDS = 0.5, 3.0


def throughput(batches: tf.data.Dataset, seconds: float | None = None) -> float:
    """Images a second of an input pipeline alone.

    Args:
        batches: pairs of images [b, ...] and labels, more of them than can be taken in that time.
        seconds: how long to measure, after a warm-up; None for 3 s.

    Returns:
        Images a second.

    Raises:
        ValueError: the batches ran out.

    Example:
        throughput(training(examples, fitted, augment=augment, batch_size=100, seed=0, steps=10**9, classes=10))
    """
    taken = iter(batches)
    _count(taken, WARM_UP)
    start = time.perf_counter()
    images = _count(taken, SECONDS if seconds is None else seconds)
    return images / (time.perf_counter() - start)


def _count(batches: Iterator[tuple[tf.Tensor, tf.Tensor]], seconds: float) -> int:
    images, until = 0, time.perf_counter() + seconds
    while time.perf_counter() < until:
        batch = next(batches, None)
        if batch is None:
            raise ValueError(f"the batches ran out before the {seconds} s were over")
        images += int(batch[0].shape[0])
    return images
