"""Batches padded to one size, so that one compiled program serves them all."""

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import keras
import numpy as np

Batches = Iterable[tuple[Any, ...]]
"""Batches as pairs (x, y) or triples (x, y, weights), as for `fit`: a `tf.data.Dataset`, a list or a generator. A
single tuple of whole arrays is accepted too, and cut into batches; x and y may also be dictionaries of arrays, and one
of the two a list of them."""
Progress = Callable[[int], None]
"""Callback that receives the number of examples processed so far after each batch."""


class Batch(NamedTuple):
    """A batch padded to the size of the first one."""

    x: Any
    y: Any
    examples: int
    """Number of examples without the padding."""
    weights: np.ndarray | None
    """Weights of the examples, `[examples]`, or of their steps, `[examples, steps]`."""


def in_batches(x: Any, y: Any, batch_size: int = 500) -> Iterator[tuple[Any, Any]]:
    """Cuts arrays into batches.

    Args:
        x: `[examples, ...]`, or a structure of such arrays.
        y: `[examples, ...]`, or a structure of such arrays.
        batch_size: examples per batch; the last one may be smaller.

    Yields:
        Pairs of slices.

    Example:
        gate_statistics(model, in_batches(images, labels))
    """
    for batch in _cut((x, y), batch_size):
        yield batch[0], batch[1]


def padded(batches: Batches) -> Iterator[Batch]:
    """Yields batches of equal size: smaller ones are padded to the size of the first.

    Args:
        batches: see `Batches`.

    Raises:
        ValueError: if there are no examples, a batch is larger than the first, or x, y and weights differ in length.
    """
    size = 0
    for batch in _cut(batches, 500) if _is_arrays(batches) else batches:
        if not isinstance(batch, tuple | list) or len(batch) not in (2, 3):
            raise ValueError(
                "Batches must be pairs (x, y) or triples (x, y, weights). To split arrays into batches, pass "
                f"highway_keras.analysis.in_batches(x, y). Received: a batch of type {type(batch).__name__}"
            )
        x, y, weights = (*batch, None)[:3]
        count = count_of(batch)
        size = size or count
        if count > size:
            raise ValueError(f"No batch may be larger than the first, which has {size} examples. Received: {count}")
        if count:
            pad = functools.partial(_pad, size=size)
            x, y = keras.tree.map_structure(pad, x), keras.tree.map_structure(pad, y)
            yield Batch(x, y, count, None if weights is None else pad(_check_weights(weights)))
    if not size:
        raise ValueError("There is nothing to measure: the batches contain no examples.")


def count_of(structure: Any) -> int:
    """Returns the number of examples in a structure of arrays.

    Raises:
        ValueError: if the arrays differ in length.
    """
    counts = {np.shape(array)[:1] for array in keras.tree.flatten(structure) if array is not None}
    if len(counts) != 1 or not (count := counts.pop()):
        raise ValueError(
            "x, y and weights must have the same number of examples. "
            f"Received: shapes {[np.shape(array) for array in keras.tree.flatten(structure)]}"
        )
    return int(count[0])


def _is_arrays(batches: Any) -> bool:
    """Tests whether a tuple is (x, y) or (x, y, weights): none of its parts could be a batch."""
    return isinstance(batches, tuple) and any(isinstance(part, dict) or hasattr(part, "shape") for part in batches)


def _cut(arrays: Any, batch_size: int) -> Iterator[Any]:
    for start in range(0, count_of(arrays), batch_size):
        part = slice(start, start + batch_size)
        yield keras.tree.map_structure(lambda array, part=part: None if array is None else array[part], arrays)


def _check_weights(weights: Any) -> np.ndarray:
    weights = np.asarray(weights, "float32")
    if not np.all(np.isfinite(weights) & (weights >= 0)):
        raise ValueError("Weights must be finite and non-negative.")
    return weights


def _pad(array: Any, size: int) -> np.ndarray:
    array = np.asarray(array)
    missing = size - len(array)
    return np.concatenate([array, np.repeat(array[-1:], missing, axis=0)]) if missing else array
