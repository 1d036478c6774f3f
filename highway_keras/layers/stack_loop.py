"""The highway equation repeated over stacked weights, with a gradient written for that loop.

Activations lie feature-major, `[units, examples]`: the small products are faster so, on both backends. The forward loop
keeps each layer's x, H and T; the backward loop carries one array, and the gradients of all weights are taken after it
in one batched product. At depth 30 that trains 1.4 times as fast as what the backend derives (docs/log.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from keras import ops

from highway_keras.layers.derivatives import DERIVATIVES
from highway_keras.layers.equations import blend, close, gradients
from highway_keras.layers.scan import scan


class Weights(NamedTuple):
    """The weights of a stack: H's and T's kernels side by side, `[depth, units, 2 * units]`, and their biases."""

    kernel: Any
    bias: Any  # [depth, units]
    transform_bias: Any  # [depth, units]


@dataclass(frozen=True)
class Maths:
    """What one layer computes: its two functions, and the dtype of its products; all else is in the gate's dtype."""

    activation: Callable[[Any], Any]
    gate_activation: Callable[[Any], Any]
    product_dtype: str

    @property
    def differentiated(self) -> bool:
        """Whether the gradient below can be used: the derivatives of both functions are known."""
        return self.activation in DERIVATIVES and self.gate_activation in DERIVATIVES

    def product(self, left: Any, right: Any, dtype: Any) -> Any:
        """A matrix product in the products' dtype, widened to `dtype`."""
        return ops.cast(ops.matmul(ops.cast(left, self.product_dtype), ops.cast(right, self.product_dtype)), dtype)

    def block_and_gate(self, x: Any, layer: Weights) -> tuple[Any, Any]:
        """H and T of one layer, `[units, examples]`."""
        block, gate = ops.split(self.product(ops.transpose(layer.kernel), x, x.dtype), 2, axis=0)
        # Each half gets its own bias: with one sum before the split, XLA computes the activations unvectorised.
        block = self.activation(block + ops.expand_dims(layer.bias, -1))
        return block, self.gate_activation(gate + ops.expand_dims(layer.transform_bias, -1))


def infer(x: Any, weights: Weights, maths: Maths) -> Any:
    """The output of the last layer.

    Args:
        x: `[units, examples]`, in the gate's dtype.
        weights: of `depth` layers, in the gate's dtype.
        maths: of each layer.

    Returns:
        y, `[units, examples]`.
    """
    return scan(_layer(maths), x, weights)[0]


def gates(x: Any, weights: Weights, maths: Maths) -> tuple[Any, Any]:
    """The output of the last layer, and the transform gates of all, `[depth, units, examples]`; see `infer`."""
    y, (transform,) = scan(_layer(maths, "gate"), x, weights, kept=1)
    return y, transform


def gates_and_outputs(x: Any, weights: Weights, maths: Maths) -> tuple[Any, Any]:
    """The transform gates and the outputs of all layers, each `[depth, units, examples]`; see `infer`."""
    return scan(_layer(maths, "gate", "y"), x, weights, kept=2)[1]


def lesioned(x: Any, weights: Weights, maths: Maths, closed: Any, first: Any) -> Any:
    """The output of the last layer with some gates closed; what comes before the first of them is not computed.

    Args:
        x: `[units, examples]`, in the gate's dtype: the input of layer `first`.
        weights: see `infer`.
        maths: see `infer`.
        closed: bool, `[depth, units]`: the units whose gates are closed.
        first: int: the layer to start at, from 0; `depth` computes none. May be a tensor.

    Returns:
        y, `[units, examples]`.
    """
    closed = ops.convert_to_tensor(closed, dtype="bool")

    def body(row: Any, x: Any) -> Any:
        layer = Weights(*(ops.take(array, row, axis=0) for array in weights))
        block, gate = maths.block_and_gate(x, layer)
        return close(blend(block, x, gate, None), x, ops.expand_dims(ops.take(closed, row, axis=0), -1))

    return ops.fori_loop(first, weights.kernel.shape[0], body, x)


def train(x: Any, weights: Weights, maths: Maths, *, rematerialize: bool = False) -> Any:
    """The output of the last layer, as `infer`, to be differentiated once.

    Args:
        x: see `infer`.
        weights: see `infer`.
        maths: see `infer`; `maths.differentiated` must hold.
        rematerialize: keep the input of every √depth-th layer only, and compute the layers between a second time on
            the way back: memory grows with the square root of depth, for about a third more work.

    Returns:
        y, `[units, examples]`.
    """
    depth = weights.kernel.shape[0]
    if not rematerialize:
        return _differentiable(_forward, _backward, x, weights, maths)
    length = math.isqrt(depth)
    head = depth % length
    if head:
        x = _differentiable(_forward, _backward, x, Weights(*(array[:head] for array in weights)), maths)
    segments = Weights(*(ops.reshape(array[head:], (-1, length, *array.shape[1:])) for array in weights))
    return _differentiable(_forward_segments, _backward_segments, x, segments, maths)


def _layer(maths: Maths, *kept: str) -> Callable[[Any, Any], tuple[Any, tuple]]:
    """The body of a loop over layers that keeps of each what is named: "x", "block", "gate", "y"."""

    def body(x: Any, layer: Any) -> tuple[Any, tuple]:
        block, gate = maths.block_and_gate(x, Weights(*layer))
        y = blend(block, x, gate, None)
        values = {"x": x, "block": block, "gate": gate, "y": y}
        return y, tuple(values[name] for name in kept)

    return body


def _differentiable(forward: Callable, backward: Callable, x: Any, weights: Weights, maths: Maths) -> Any:
    @ops.custom_gradient
    def run(x: Any, *weights: Any) -> Any:
        y, kept = forward(x, Weights(*weights), maths)

        def gradient(upstream: Any) -> tuple:
            return backward(upstream, kept, Weights(*weights), maths)

        return y, gradient

    return run(x, *weights)


def _forward(x: Any, weights: Weights, maths: Maths) -> tuple[Any, tuple]:
    return scan(_layer(maths, "x", "block", "gate"), x, weights, kept=3)


def _backward(upstream: Any, kept: tuple, weights: Weights, maths: Maths) -> tuple:
    """The gradients of x, kernel, bias and transform bias."""
    derivatives = DERIVATIVES[maths.activation], DERIVATIVES[maths.gate_activation]

    def body(upstream: Any, layer: tuple) -> tuple[Any, tuple]:
        x, block, gate, kernel = layer
        of = gradients(upstream, block, x, gate, derivatives)
        sums = ops.concatenate([of.block, of.transform], axis=0)
        return of.inputs + maths.product(kernel, sums, x.dtype), (sums,)

    upstream, (sums,) = scan(body, upstream, (*kept, weights.kernel), kept=1, reverse=True)
    kernel = maths.product(kept[0], ops.swapaxes(sums, 1, 2), upstream.dtype)
    bias, transform_bias = ops.split(ops.sum(sums, axis=2), 2, axis=1)
    return upstream, kernel, bias, transform_bias


def _forward_segments(x: Any, segments: Weights, maths: Maths) -> tuple[Any, tuple]:
    def body(x: Any, segment: Any) -> tuple[Any, tuple]:
        return infer(x, Weights(*segment), maths), (x,)

    return scan(body, x, segments, kept=1)


def _backward_segments(upstream: Any, kept: tuple, segments: Weights, maths: Maths) -> tuple:
    def body(upstream: Any, segment: tuple) -> tuple[Any, tuple]:
        x, *weights = segment
        _, kept = _forward(x, Weights(*weights), maths)
        upstream, *of_weights = _backward(upstream, kept, Weights(*weights), maths)
        return upstream, tuple(of_weights)

    upstream, of_weights = scan(body, upstream, (*kept, *segments), kept=3, reverse=True)
    return upstream, *of_weights
