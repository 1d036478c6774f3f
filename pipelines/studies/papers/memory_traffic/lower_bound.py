"""Bytes that a training step must read and write, by hand: the passes over arrays that each kind of block needs.

Products write their result, as no compiler fuses two of them; all elementwise work between two products is one pass.
A program that moves more than this has passes that could be joined.
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
    """From the gradient of W x + b to those of W, b and x."""
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
        # Of y, H, T and x; to those of both maps, and to what is carried back.
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
    # Gradient, weight and two moments; weight and moments.
    Pass("Adam", 4, 3),
)


class Moved(NamedTuple):
    """Bytes a step."""

    weights: int
    """Of weights, their gradients, and the state of the optimiser."""
    activations: int
    """Of what the blocks compute and keep of the examples of a batch, and of the inputs."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.weights + self.activations


def arrays(passes: tuple[Pass, ...]) -> int:
    """How often an array is read or written in some passes.

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
    """What a step of Adam with a clipped norm moves at least.

    Args:
        kind: of the blocks.
        blocks: of the net, after a plain projection.
        units: of each block.
        batch: examples a step.
        inputs: values of an example.
        parameters: of the whole net.

    Returns:
        Bytes. The softmax and its loss, ten numbers an example, are left out.

    Example:
        least("plain", blocks=30, units=50, batch=128, inputs=784, parameters=116_260)
    """
    # The projection is a plain layer whose input needs no gradient; its product and the gradient of W read the image.
    projection = batch * (2 * inputs + (arrays(PASSES["plain"]) - 2 - 2) * units)
    return Moved(
        weights=FLOAT * arrays(WEIGHT_PASSES) * parameters,
        activations=FLOAT * (projection + blocks * arrays(PASSES[kind]) * batch * units),
    )
