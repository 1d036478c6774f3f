"""The slope of an activation, from its output alone: what a backward pass needs and a forward pass has kept."""

from collections.abc import Callable
from typing import Any

from keras import activations, ops

Slope = Callable[[Any], Any]


def _relu(output: Any) -> Any:
    return ops.cast(output > 0, output.dtype)


def _leaky_relu(output: Any) -> Any:
    return ops.where(output > 0, ops.ones_like(output), 0.2 * ops.ones_like(output))


def _elu(output: Any) -> Any:
    return ops.where(output > 0, ops.ones_like(output), output + 1)


def _hard_sigmoid(output: Any) -> Any:
    return ops.cast((output > 0) & (output < 1), output.dtype) / 6


SLOPES: dict[Callable[[Any], Any], Slope] = {
    activations.linear: ops.ones_like,
    activations.relu: _relu,
    activations.leaky_relu: _leaky_relu,
    activations.elu: _elu,
    activations.tanh: lambda output: 1 - output * output,
    activations.sigmoid: lambda output: output * (1 - output),
    activations.hard_sigmoid: _hard_sigmoid,
}


def slope(activation: Callable[[Any], Any]) -> Slope | None:
    """The function from an activation's output to its derivative at the same point.

    Args:
        activation: a function of `keras.activations`.

    Returns:
        The function; None where the derivative is not known from the output.

    Example:
        slope(keras.activations.tanh)(ops.tanh(x))  # 1 - tanh(x) ** 2
    """
    return SLOPES.get(activation)
