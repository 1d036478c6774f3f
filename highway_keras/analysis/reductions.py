"""Masked reductions of gates over positions, the pixels of a feature map or the steps of a sequence."""

from collections.abc import Callable, Mapping
from typing import Any

from keras import ops

from highway_keras.analysis.layout import Layout
from highway_keras.layers.base import expand_mask
from highway_keras.layers.recording import Recording

Axes = tuple[int, ...]
Reduction = Callable[[Any, Axes, Any], Any]
"""Reduces an array over the axes of its positions; the last argument marks the values that count, None for all."""


def total(array: Any, axes: Axes, valid: Any) -> Any:
    """Sums over the valid positions.

    Args:
        array: `[batch, ..., units]`.
        axes: axes of the positions; may be empty.
        valid: bool, of the shape of `array`; None counts everything.
    """
    if valid is not None:
        array = ops.where(valid, array, ops.zeros_like(array))
    return ops.sum(array, axis=axes) if axes else array


def weight(array: Any, axes: Axes, valid: Any) -> Any:
    """Returns the divisor that turns `total` into a mean: the number of valid positions."""
    return total(ops.ones_like(array), axes, valid)


def mean(array: Any, axes: Axes, valid: Any) -> Any:
    """Takes the mean over the valid positions; NaN where there are none."""
    if valid is None:
        return ops.mean(array, axis=axes) if axes else array
    return total(array, axes, valid) / weight(array, axes, valid)


def maximum(array: Any, axes: Axes, valid: Any) -> Any:
    """Takes the maximum of non-negative values over the valid positions; 0 where there are none."""
    if valid is not None:
        array = ops.where(valid, array, ops.zeros_like(array))
    return ops.max(array, axis=axes) if axes else array


def per_unit(values: Mapping[str, Any], masks: Mapping[str, Any], layout: Layout, reduction: Reduction) -> Any:
    """Reduces a recording to one value per example and gate, `[batch, gates]`.

    Args:
        values: T, or a function of it, by call name.
        masks: masks of the recording.
        layout: layout of the recording.
        reduction: `total`, `weight`, `mean` or `maximum`.
    """
    rows = []
    for call in layout.calls:
        array = ops.moveaxis(values[call.name], call.axis, -1)
        axes = tuple(range(1, len(array.shape) - (1 if call.depth is None else 2)))
        reduced = reduction(array, axes, _valid(array, masks.get(call.name)))
        rows.append(ops.reshape(reduced, (-1, call.units * (call.depth or 1))))
    return ops.concatenate(rows, axis=1)


def per_call(recorded: Recording, reduction: Reduction) -> dict[str, Any]:
    """Reduces a recording to one value per example and call, `[batch]`; for a stack `[batch, depth]`."""

    def reduced(name: str, gate: Any) -> Any:
        gate = ops.moveaxis(gate, recorded.layers[name].unit_axis, -1)
        axes = set(range(1, len(gate.shape))) - ({len(gate.shape) - 2} if name in recorded.depths else set())
        return reduction(gate, tuple(sorted(axes)), _valid(gate, recorded.masks.get(name)))

    return {name: reduced(name, gate) for name, gate in recorded.items()}


def _valid(gate: Any, mask: Any) -> Any:
    """Broadcasts a mask of a layer's inputs to the shape of its gates."""
    return None if mask is None else ops.broadcast_to(expand_mask(mask, len(gate.shape)), ops.shape(gate))
