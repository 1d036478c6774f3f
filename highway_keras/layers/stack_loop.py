"""A loop of the highway equation over stacked weights, with a hand-written gradient.

Activations are arranged as the maths of a layer takes them (`LayerMath.enter`). The forward loop saves x, H and T of
each layer; the backward loop carries a single array, and one batched product after it yields the gradients of all
weights. PyTorch differentiates the forward loop itself, as fast.
"""

from collections.abc import Callable
from functools import partial
from math import isqrt
from typing import Any

from keras import ops

from highway_keras.layers.equations import DERIVATIVES, close, gradients
from highway_keras.layers.layer_math import LayerMath, TorchLayerMath, Weights
from highway_keras.layers.scan import scan, stacked


def infer(x: Any, weights: Weights, math: LayerMath) -> Any:
    """Computes the output of the last layer.

    Args:
        x: inputs as `math.enter` arranges them, in the gate's dtype.
        weights: weights of `depth` layers, in the gate's dtype.
        math: maths of each layer.

    Returns:
        y, arranged like x.
    """
    return scan(_layer(math), x, weights.arrays)[0]


def gates(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, Any]:
    """Computes the output of the last layer and all transform gates, `[depth, ...]`, arranged like x; see `infer`."""
    y, (transform,) = scan(_layer(math, "gate"), x, weights.arrays, kept=1)
    return y, stacked(transform)


def gates_and_outputs(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, Any]:
    """Computes transform gates and outputs of all layers, each `[depth, ...]`, arranged like x; see `infer`."""
    transform, outputs = scan(_layer(math, "gate", "y"), x, weights.arrays, kept=2)[1]
    return stacked(transform), stacked(outputs)


def lesioned(x: Any, weights: Weights, math: LayerMath, closed: Any, first: Any) -> Any:
    """Computes the output of the last layer with some gates closed, starting at a given layer.

    Args:
        x: input of layer `first`, as for `infer`.
        weights: see `infer`.
        math: see `infer`.
        closed: bool, `[depth, units]`: units with closed gates.
        first: int or int tensor: index of the first layer to compute; `depth` computes none.

    Returns:
        y, arranged like x.
    """
    closed, slices = ops.convert_to_tensor(closed, dtype="bool"), weights.arrays

    def body(row: Any, x: Any) -> Any:
        block, gate = math.block_and_gate(x, tuple(ops.take(array, row, axis=0) for array in slices))
        return close(math.blend(block, x, gate), x, math.enter(ops.take(closed, row, axis=0)[None]))

    return ops.fori_loop(first, weights.depth, body, x)


def train(x: Any, weights: Weights, math: LayerMath, *, rematerialize: bool = False) -> Any:
    """Computes the output of the last layer like `infer`, with the hand-written gradient.

    Args:
        x: see `infer`.
        weights: see `infer`.
        math: see `infer`; `math.has_gradient` must hold.
        rematerialize: whether to save the input of every √depth-th layer only and recompute the layers between in the
            backward pass: memory grows with the square root of depth, at about a third more computation.

    Returns:
        y, arranged like x.
    """
    if isinstance(math, TorchLayerMath) and not rematerialize:
        return infer(x, weights, math)
    if not rematerialize:
        return _differentiable(_forward, _backward, x, weights, math)
    length = isqrt(weights.depth)
    head = weights.depth % length
    if head:
        x = train(x, Weights.of(array[:head] for array in weights.arrays), math)
    segments = Weights.of(ops.reshape(array[head:], (-1, length, *array.shape[1:])) for array in weights.arrays)
    if isinstance(math, TorchLayerMath):
        for segment in zip(*segments.arrays, strict=True):
            x = math.checkpointed(partial(infer, weights=Weights.of(segment), math=math), x)
        return x
    return _differentiable(_forward_segments, _backward_segments, x, segments, math)


def _layer(math: LayerMath, *saved: str) -> Callable[[Any, Any], tuple[Any, tuple]]:
    """Returns the body of a loop over layers that saves the named tensors: "x", "block", "gate", "y"."""

    def body(x: Any, layer: Any) -> tuple[Any, tuple]:
        block, gate = math.block_and_gate(x, layer)
        y = math.blend(block, x, gate)
        values = {"x": x, "block": block, "gate": gate, "y": y}
        return y, tuple(values[name] for name in saved)

    return body


def _differentiable(forward: Callable, backward: Callable, x: Any, weights: Weights, math: LayerMath) -> Any:
    @ops.custom_gradient
    def run(x: Any, *weights: Any) -> Any:
        y, saved = forward(x, Weights.of(weights), math)

        def gradient(upstream: Any) -> tuple:
            return backward(upstream, saved, Weights.of(weights), math)

        return y, gradient

    return run(x, *weights.arrays)


def _forward(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, tuple]:
    return scan(_layer(math, "x", "block", "gate"), x, weights.arrays, kept=3)


def _backward(upstream: Any, saved: tuple, weights: Weights, math: LayerMath) -> tuple:
    """Returns the gradients of x, the kernels, bias and transform bias."""
    derivatives = DERIVATIVES[math.activation], DERIVATIVES[math.gate_activation]

    def body(upstream: Any, layer: tuple) -> tuple[Any, tuple]:
        x, block, gate, *kernels = layer
        local = gradients(upstream, block, x, gate, derivatives)
        sums = math.aligned(local.block, local.transform, len(kernels))
        upstream = local.inputs
        for kernel, part in zip(kernels, sums, strict=True):
            upstream = math.add_product(upstream, kernel, part)
        return upstream, sums

    count = len(weights.kernels)
    upstream, sums = scan(body, upstream, (*saved, *weights.kernels), kept=count, reverse=True)
    kernels, biases = zip(*(math.weight_gradients(saved[0], part) for part in sums), strict=True)
    return (upstream, *kernels, *(biases if count == 2 else ops.split(biases[0], 2, axis=1)))


def _forward_segments(x: Any, segments: Weights, math: LayerMath) -> tuple[Any, tuple]:
    def body(x: Any, segment: Any) -> tuple[Any, tuple]:
        return infer(x, Weights.of(segment), math), (x,)

    return scan(body, x, segments.arrays, kept=1)


def _backward_segments(upstream: Any, saved: tuple, segments: Weights, math: LayerMath) -> tuple:
    def body(upstream: Any, segment: tuple) -> tuple[Any, tuple]:
        x, *weights = segment
        _, saved = _forward(x, Weights.of(weights), math)
        upstream, *weight_gradients = _backward(upstream, saved, Weights.of(weights), math)
        return upstream, tuple(weight_gradients)

    kept = len(segments.arrays)
    upstream, weight_gradients = scan(body, upstream, (*saved, *segments.arrays), kept=kept, reverse=True)
    return upstream, *map(stacked, weight_gradients)
