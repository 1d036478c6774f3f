"""Means of scores over examples and steps: what is masked does not count, and weights weigh."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers.base import expand_mask


class _Mask(keras.layers.Layer):
    """Gives the mask that Keras passes on with a tensor."""

    def __init__(self) -> None:
        super().__init__(autocast=False, name="mask")
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        del inputs
        return mask


def mask_of(outputs: Any) -> Any:
    """The mask of a model's outputs, `[batch, steps]`; None if there is none, or several outputs."""
    return _Mask()(outputs) if hasattr(outputs, "shape") else None


def total(values: Any, mask: Any = None, weights: Any = None) -> Any:
    """The sum of an example's scores over its steps.

    Args:
        values: `[batch]`, or `[batch, steps]`, or with more axes of places.
        mask: of the outputs; read where there are steps.
        weights: `[batch]` or `[batch, 1]`, or of the shape of `values`; None weighs all alike.

    Returns:
        `[batch]`. The mean is the sum of these, divided by the sum of those of `ones_like(values)`.

    Raises:
        ValueError: if the weights do not fit the values.
    """
    rank = len(values.shape)
    if mask is not None and 1 < len(mask.shape) <= rank:
        values = ops.where(expand_mask(mask, rank), values, ops.zeros_like(values))
    if weights is not None:
        if len(weights.shape) == rank + 1 and weights.shape[-1] == 1:
            weights = ops.squeeze(weights, -1)
        if len(weights.shape) > rank:
            raise ValueError(
                "Weights must be of examples, [batch], or of the scores of their steps. "
                f"Received: weights of shape {tuple(weights.shape)} for scores of shape {tuple(values.shape)}"
            )
        values = values * ops.reshape(weights, (*ops.shape(weights), *[1] * (rank - len(weights.shape))))
    return ops.sum(values, axis=tuple(range(1, rank))) if rank > 1 else values
