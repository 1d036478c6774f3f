"""The highway equation, its derivatives and its inference form. No other module writes them out.

The equation and its partial derivatives use operators only, so they accept NumPy arrays as well as tensors of any
backend. All arguments of a function have the same shape and dtype. The order of operations determines how every result
is rounded: do not rearrange them.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import activations, ops

Derivative = Callable[[Any], Any]


class Partials(NamedTuple):
    """The partial derivatives of y = T * H + (1 - T) * x."""

    block: Any
    """dy/dH = T."""
    transform: Any
    """dy/dT = H - x."""
    inputs: Any
    """dy/dx = 1 - T, with H and T held constant."""


def blend(block: Any, inputs: Any, transform: Any, carry: Any) -> Any:
    """Computes the highway equation y = H * T + x * C (arXiv 1507.06228, equation 2).

    Args:
        block: block state H.
        inputs: x.
        transform: transform gate T, between 0 and 1.
        carry: carry gate C; None couples it, C = 1 - T (equation 3).

    Returns:
        y.

    Example:
        >>> blend(block=3.0, inputs=1.0, transform=0.25, carry=None)
        1.5
    """
    return block * transform + inputs * (1.0 - transform if carry is None else carry)


def blend_for_inference(block: Any, inputs: Any, transform: Any) -> Any:
    """Computes the coupled equation in three operations, y = x + T * (H - x), for graphs limited by operation count.

    Rounding differs from `blend`: with T = 1, y equals H up to rounding only.

    Args:
        block: block state H.
        inputs: x.
        transform: transform gate T.

    Returns:
        y.

    Example:
        >>> blend_for_inference(block=3.0, inputs=1.0, transform=0.25)
        1.5
    """
    return inputs + transform * (block - inputs)


def blend_in_torch(block: Any, inputs: Any, transform: Any) -> Any:
    """Computes the coupled equation in one operation of PyTorch, and its gradient in three.

    Args:
        block: block state H, a tensor of PyTorch.
        inputs: x.
        transform: transform gate T.

    Returns:
        y, which rounds like `blend_for_inference` for T below 0.5, and equals H with T = 1.
    """
    import torch

    return torch.lerp(inputs, block, transform)


def partials(block: Any, inputs: Any, transform: Any) -> Partials:
    """Computes the partial derivatives of the coupled equation (arXiv 1507.06228, equations 3 to 5).

    Args:
        block: block state H.
        inputs: x.
        transform: transform gate T.

    Returns:
        One array per argument.

    Example:
        >>> partials(block=3.0, inputs=1.0, transform=0.25)
        Partials(block=0.25, transform=2.0, inputs=0.75)
    """
    return Partials(transform, block - inputs, 1 - transform)


def gradients(
    upstream: Any, block: Any, inputs: Any, transform: Any, derivatives: tuple[Derivative, Derivative]
) -> Partials:
    """Backpropagates through the coupled equation and the two activations.

    Args:
        upstream: gradient with respect to y.
        block: block state H.
        inputs: x.
        transform: transform gate T.
        derivatives: derivatives of the activations of H and T as functions of their outputs (`DERIVATIVES`).

    Returns:
        Gradients with respect to the pre-activations of H and T and to x. That of x covers the carry path only, not
        the matrix products.
    """
    local = partials(block, inputs, transform)
    block_derivative, gate_derivative = derivatives
    return Partials(
        upstream * local.block * block_derivative(block),
        upstream * local.transform * gate_derivative(transform),
        upstream * local.inputs,
    )


def gate_slope(transform: Any) -> Any:
    """Computes the slope T * (1 - T) of a sigmoid gate: its derivative with respect to its pre-activation.

    Args:
        transform: transform gate T, a tensor, an array or a number.

    Returns:
        The slope, between 0 for a saturated gate and 1/4.

    Example:
        >>> gate_slope(0.25)
        0.1875
    """
    return transform * (1 - transform)


def close(outputs: Any, inputs: Any, closed: Any) -> Any:
    """Closes gates: with T = 0 and C = 1 a unit carries its input, y = x.

    Selects the input instead of multiplying by zero, which would turn an infinite H into NaN.

    Args:
        outputs: y of the intact layer.
        inputs: x.
        closed: bool, broadcastable to y.

    Returns:
        y with the given gates closed.

    Reference:
        arXiv 1507.06228, section 4.2.
    """
    return ops.where(ops.convert_to_tensor(closed, dtype="bool"), inputs, outputs)


def _relu(output: Any) -> Any:
    return ops.cast(output > 0, output.dtype)


def _leaky_relu(output: Any) -> Any:
    # Keras's own slope below 0, in the dtype of the output.
    one = ops.ones_like(output)
    return ops.where(output > 0, one, -activations.leaky_relu(-one))


def _elu(output: Any) -> Any:
    return ops.where(output > 0, ops.ones_like(output), output + 1)


def _hard_sigmoid(output: Any) -> Any:
    return ops.cast((output > 0) & (output < 1), output.dtype) / 6


DERIVATIVES: dict[Callable[[Any], Any], Derivative] = {
    activations.linear: ops.ones_like,
    activations.relu: _relu,
    activations.leaky_relu: _leaky_relu,
    activations.elu: _elu,
    activations.tanh: lambda output: 1 - output * output,
    activations.sigmoid: gate_slope,
    activations.hard_sigmoid: _hard_sigmoid,
}
"""Derivatives of activations as functions of their outputs, which the forward pass has already saved."""
