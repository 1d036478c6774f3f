"""Batches of examples with what is known of them, all of one size so that one compiled program serves."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import keras
import numpy as np

Batches = Iterable[tuple[Any, Any]]
"""Pairs (x, y), each of one batch: a `tf.data.Dataset`, a list, a generator."""
Told = Callable[[int], None]
"""Is called with the number of examples done after each batch."""


def in_batches(x: np.ndarray, y: np.ndarray, batch_size: int = 500) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Cuts arrays into batches.

    Args:
        x: `[examples, ...]`.
        y: `[examples, ...]`.
        batch_size: examples a batch; the last one holds what is left.

    Yields:
        Pairs of slices.

    Example:
        gate_statistics(model, in_batches(images, labels))
    """
    for start in range(0, len(x), batch_size):
        yield x[start : start + batch_size], y[start : start + batch_size]


def even(batches: Batches) -> Iterator[tuple[Any, Any, int]]:
    """The batches with their numbers of examples; a smaller one is filled up to the size of the first.

    Raises:
        ValueError: if there is no example, or a batch is larger than the first.
    """
    size = 0
    for x, y in batches:
        count = len(y)
        size = size or count
        if count > size:
            raise ValueError(f"Each batch must be at most as large as the first, {size} examples. Received: {count}")
        if count:
            fill = functools.partial(_filled, size=size)
            yield keras.tree.map_structure(fill, x), fill(y), count
    if not size:
        raise ValueError("There is nothing to measure: the batches hold no example.")


def _filled(array: Any, size: int) -> np.ndarray:
    array = np.asarray(array)
    missing = size - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
