"""The highway equation, its derivatives and its form for inference: every other place uses these functions.

They are written in operators alone, so tensors of any backend and numpy arrays may be passed, and the bits of a result
depend on the order of the operations here. Shapes and dtypes of all arguments are equal.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from keras import ops


class Partials(NamedTuple):
    """The derivatives of y = T * H + (1 - T) * x with respect to each of its arguments."""

    block: Any
    """dy/dH = T."""
    transform: Any
    """dy/dT = H - x."""
    inputs: Any
    """dy/dx = 1 - T, as far as H and T do not depend on x."""


def blend(block: Any, inputs: Any, transform: Any, carry: Any) -> Any:
    """The highway equation y = H * T + x * C (arXiv 1507.06228, equation 2).

    Args:
        block: H, the state of the block.
        inputs: x, of the same shape.
        transform: T, between 0 and 1, of the same shape.
        carry: C, of the same shape; None couples it: C = 1 - T (equation 3).

    Returns:
        y, of the same shape.

    Example:
        >>> blend(block=3.0, inputs=1.0, transform=0.25, carry=None)
        1.5
    """
    return block * transform + inputs * (1.0 - transform if carry is None else carry)


def blend_for_inference(block: Any, inputs: Any, transform: Any) -> Any:
    """The coupled equation in three operations, y = x + T * (H - x), for graphs where each operation costs time.

    It rounds differently: with T = 1, y is H only to rounding.

    Args:
        block: H.
        inputs: x.
        transform: T.

    Returns:
        y.

    Example:
        >>> blend_for_inference(block=3.0, inputs=1.0, transform=0.25)
        1.5
    """
    return inputs + transform * (block - inputs)


def partials(block: Any, inputs: Any, transform: Any) -> Partials:
    """The derivatives of the coupled equation (arXiv 1507.06228, equations 3 to 5).

    Args:
        block: H.
        inputs: x.
        transform: T.

    Returns:
        One array for each argument.

    Example:
        >>> partials(block=3.0, inputs=1.0, transform=0.25)
        Partials(block=0.25, transform=2.0, inputs=0.75)
    """
    return Partials(transform, block - inputs, 1 - transform)


def gradients(
    upstream: Any,
    block: Any,
    inputs: Any,
    transform: Any,
    derivatives: tuple[Callable[[Any], Any], Callable[[Any], Any]],
) -> Partials:
    """The gradients of the sums before the activations of H and T, and of x on its way around them.

    Args:
        upstream: the gradient of y.
        block: H.
        inputs: x.
        transform: T.
        derivatives: of the activations of H and T, as functions of their outputs (`DERIVATIVES`).

    Returns:
        The gradients. That of x lacks what comes through the products.
    """
    of = partials(block, inputs, transform)
    of_block, of_gate = derivatives
    return Partials(
        upstream * of.block * of_block(block), upstream * of.transform * of_gate(transform), upstream * of.inputs
    )


def close(outputs: Any, inputs: Any, closed: Any) -> Any:
    """Closes gates, so that their units carry their input: with T = 0 and C = 1, y = x.

    The input is selected, not multiplied: 0 times an H that is infinite or NaN would be NaN.

    Args:
        outputs: y with all gates as they are.
        inputs: x, of the same shape.
        closed: bool, of a shape that can be broadcast to that of y.

    Returns:
        y with some gates closed.

    Reference:
        arXiv 1507.06228, section 4.2.
    """
    return ops.where(ops.convert_to_tensor(closed, dtype="bool"), inputs, outputs)
