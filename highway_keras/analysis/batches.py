"""Batches of examples with what is known of them, all of one size so that one compiled program serves."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

Batches = Iterable[tuple[Any, ...]]
"""Pairs (x, y), each of one batch, or triples with the weights of the examples, as `fit` takes them: a
`tf.data.Dataset`, a list, a generator. Or one such tuple of whole arrays, which is cut into batches."""
Told = Callable[[int], None]
"""Is called with the number of examples done after each batch."""


class Batch(NamedTuple):
    """A batch filled up to the size of the first."""

    x: Any
    y: Any
    examples: int
    """How many there are without those that fill it."""
    weights: np.ndarray | None
    """Of the examples, `[examples]`, or of their steps, `[examples, steps]`."""


def in_batches(x: Any, y: Any, batch_size: int = 500) -> Iterator[tuple[Any, Any]]:
    """Cuts arrays into batches.

    Args:
        x: `[examples, ...]`, or a structure of such arrays.
        y: `[examples, ...]`, or a structure of such arrays.
        batch_size: examples a batch; the last one holds what is left.

    Yields:
        Pairs of slices.

    Example:
        gate_statistics(model, in_batches(images, labels))
    """
    for batch in _cut((x, y), batch_size):
        yield batch[0], batch[1]


def even(batches: Batches) -> Iterator[Batch]:
    """The batches with their numbers of examples; a smaller one is filled up to the size of the first.

    Args:
        batches: see `Batches`.

    Raises:
        ValueError: if there is no example, a batch is larger than the first, or x, y and weights differ in number.
    """
    size = 0
    for batch in _cut(batches, 500) if _is_arrays(batches) else batches:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise ValueError(
                "Batches must be pairs (x, y) or triples (x, y, weights). To cut arrays into batches, pass "
                f"highway_keras.analysis.in_batches(x, y). Received: a batch of type {type(batch).__name__}"
            )
        x, y, weights = (*batch, None)[:3]
        count = count_of(batch)
        size = size or count
        if count > size:
            raise ValueError(f"Each batch must be at most as large as the first, {size} examples. Received: {count}")
        if count:
            fill = functools.partial(_filled, size=size)
            x, y = keras.tree.map_structure(fill, x), keras.tree.map_structure(fill, y)
            yield Batch(x, y, count, None if weights is None else fill(_checked(weights)))
    if not size:
        raise ValueError("There is nothing to measure: the batches hold no example.")


def count_of(structure: Any) -> int:
    """The number of examples in a structure of arrays.

    Raises:
        ValueError: if they differ in it.
    """
    counts = {np.shape(array)[:1] for array in keras.tree.flatten(structure) if array is not None}
    if len(counts) != 1 or not (count := counts.pop()):
        raise ValueError(
            "x, y and weights must have as many examples. "
            f"Received: shapes {[np.shape(array) for array in keras.tree.flatten(structure)]}"
        )
    return int(count[0])


def _is_arrays(batches: Any) -> bool:
    return isinstance(batches, tuple) and bool(batches) and all(map(hasattr, batches, ["shape"] * len(batches)))


def _cut(arrays: Any, batch_size: int) -> Iterator[Any]:
    for start in range(0, count_of(arrays), batch_size):
        stop = start + batch_size
        yield keras.tree.map_structure(lambda array, part=slice(start, stop): array[part], arrays)


def _checked(weights: Any) -> np.ndarray:
    weights = np.asarray(weights, "float32")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError("Weights of examples must be finite, 0 or more.")
    return weights


def _filled(array: Any, size: int) -> np.ndarray:
    array = np.asarray(array)
    missing = size - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
