"""Derivatives of activations as functions of their outputs, which a forward pass has kept for the backward pass."""

from collections.abc import Callable
from typing import Any

from keras import activations, ops

Derivative = Callable[[Any], Any]


def _relu(output: Any) -> Any:
    return ops.cast(output > 0, output.dtype)


def _leaky_relu(output: Any) -> Any:
    # Keras's own derivative below 0, in the dtype at hand.
    one = ops.ones_like(output)
    return ops.where(output > 0, one, -activations.leaky_relu(-one))


def _elu(output: Any) -> Any:
    return ops.where(output > 0, ops.ones_like(output), output + 1)


def _hard_sigmoid(output: Any) -> Any:
    return ops.cast((output > 0) & (output < 1), output.dtype) / 6


# Activation to the function from its output to its derivative at the same point.
DERIVATIVES: dict[Callable[[Any], Any], Derivative] = {
    activations.linear: ops.ones_like,
    activations.relu: _relu,
    activations.leaky_relu: _leaky_relu,
    activations.elu: _elu,
    activations.tanh: lambda output: 1 - output * output,
    activations.sigmoid: lambda output: output * (1 - output),
    activations.hard_sigmoid: _hard_sigmoid,
}
