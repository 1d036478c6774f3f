"""Sums, means and maxima over the places of a layer: all of them, or those that a mask lets count."""

from typing import Any

from keras import ops

from highway_keras.layers.base import expand_mask

Axes = tuple[int, ...]


def real(gate: Any, mask: Any) -> Any:
    """Which values of T count.

    Args:
        gate: T, `[batch, ..., units]`, of a stack `[batch, ..., depth, units]`.
        mask: of the layer's inputs, `[batch, ...]`, true where a place counts; None if there is none.

    Returns:
        bool, of the shape of T; None where all count.
    """
    return None if mask is None else ops.broadcast_to(expand_mask(mask, len(gate.shape)), ops.shape(gate))


def total(array: Any, axes: Axes, counted: Any) -> Any:
    """The sum over the places that count; the mean over all places where there is no mask; see `weight`.

    Args:
        array: `[batch, ..., units]`.
        axes: of the places; may be none.
        counted: from `real`, of the same shape; None counts all.
    """
    if counted is None:
        return ops.mean(array, axis=axes) if axes else array
    return _sum(ops.where(counted, array, ops.zeros_like(array)), axes)


def weight(array: Any, axes: Axes, counted: Any) -> Any:
    """What `total` divided by this is the mean of: the number of places that count, and 1 where there is no mask."""
    return total(ops.ones_like(array), axes, counted)


def mean(array: Any, axes: Axes, counted: Any) -> Any:
    """The mean over the places that count; NaN where none does."""
    summed = total(array, axes, counted)
    return summed if counted is None else summed / weight(array, axes, counted)


def largest(array: Any, axes: Axes, counted: Any) -> Any:
    """The maximum over the places that count, of values of 0 or more; 0 where none does."""
    if counted is not None:
        array = ops.where(counted, array, ops.zeros_like(array))
    return ops.max(array, axis=axes) if axes else array


def _sum(array: Any, axes: Axes) -> Any:
    return ops.sum(array, axis=axes) if axes else array
