"""Lower bound of the bytes that a training step reads and writes, from the passes that each kind of block needs.

Matrix products write their results to memory, because no compiler fuses two of them; all elementwise work between two
products is one pass. A program that moves more bytes has passes that could be fused.
"""

from typing import Literal, NamedTuple

Kind = Literal["highway", "residual", "plain"]
FLOAT = 4
"""Bytes of a float32."""


class Pass(NamedTuple):
    """A pass over arrays of `[batch, units]`."""

    does: str
    reads: int
    writes: int


def _gradients_of_map() -> tuple[Pass, ...]:
    """Returns the passes from the gradient of W x + b to the gradients of W, b and x."""
    return Pass("gradient of W", 2, 0), Pass("gradient of b", 1, 0), Pass("gradient of x", 1, 1)


PASSES: dict[Kind, tuple[Pass, ...]] = {
    "plain": (
        Pass("W x", 1, 1),
        Pass("H from W x", 1, 1),
        Pass("gradient through H", 2, 1),
        *_gradients_of_map(),
    ),
    "residual": (
        Pass("W x", 1, 1),
        Pass("H and x + H from W x and x", 2, 2),
        Pass("gradient through H", 2, 1),
        *_gradients_of_map(),
        Pass("sum of both gradients of x", 2, 1),
    ),
    "highway": (
        Pass("W x", 1, 1),
        Pass("W_T x", 1, 1),
        Pass("H, T and y from both and x", 3, 3),
        # Reads the gradient of y, and H, T and x; writes the gradients of both maps and of the carried input.
        Pass("gradient through blend, H and T", 4, 3),
        *_gradients_of_map(),
        *_gradients_of_map(),
        Pass("sum of three gradients of x", 3, 1),
    ),
}

WEIGHT_PASSES = (
    Pass("W x", 1, 0),
    Pass("gradient of x", 1, 0),
    Pass("gradient of W", 0, 1),
    Pass("global norm of the gradient", 1, 0),
    # Reads the gradient, the weight and two moments; writes the weight and the moments.
    Pass("Adam", 4, 3),
)


class Moved(NamedTuple):
    """Bytes per step."""

    weights: int
    """Bytes of weights, their gradients and the optimizer's state."""
    activations: int
    """Bytes of inputs, and of the blocks' activations and their gradients."""

    @property
    def total(self) -> int:
        """Sum of both."""
        return self.weights + self.activations


def arrays(passes: tuple[Pass, ...]) -> int:
    """Returns the number of arrays that passes read and write.

    Example:
        arrays(PASSES["plain"])  # 12
    """
    return sum(each.reads + each.writes for each in passes)


def least(
    kind: Kind,
    *,
    blocks: int,
    units: int,
    batch: int,
    inputs: int,
    parameters: int,
) -> Moved:
    """Returns the lower bound for a step of Adam with clipping by global norm.

    Args:
        kind: kind of block.
        blocks: number of blocks, after a plain projection.
        units: width of each block.
        batch: examples per step.
        inputs: values per example.
        parameters: number of parameters of the whole net.

    Returns:
        Bytes, without those of softmax and loss (ten numbers per example).

    Example:
        least("plain", blocks=30, units=50, batch=128, inputs=784, parameters=116_260)
    """
    # The projection is a plain layer whose input needs no gradient; the product and the gradient of W read the inputs.
    projection = batch * (2 * inputs + (arrays(PASSES["plain"]) - 2 - 2) * units)
    return Moved(
        weights=FLOAT * arrays(WEIGHT_PASSES) * parameters,
        activations=FLOAT * (projection + blocks * arrays(PASSES[kind]) * batch * units),
    )
