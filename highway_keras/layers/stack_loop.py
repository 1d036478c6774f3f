"""A loop of the highway equation over stacked weights, with a hand-written gradient.

Activations are feature-major, `[units, examples]`, which makes the small products faster on every backend. The forward
loop saves x, H and T of each layer; the backward loop carries a single array, and one batched product after it yields
the gradients of all weights.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

from keras import ops

from highway_keras.layers.equations import DERIVATIVES, blend, close, gradients
from highway_keras.layers.layer_math import LayerMath, Weights
from highway_keras.layers.scan import is_traced, scan, stacked


def infer(x: Any, weights: Weights, math: LayerMath) -> Any:
    """Computes the output of the last layer.

    Args:
        x: `[units, examples]`, in the gate's dtype.
        weights: weights of `depth` layers, in the gate's dtype.
        math: maths of each layer.

    Returns:
        y, `[units, examples]`.
    """
    return scan(_layer(math), x, math.slices(weights))[0]


def gates(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, Any]:
    """Computes the output of the last layer and all transform gates, `[depth, units, examples]`; see `infer`."""
    y, (transform,) = scan(_layer(math, "gate"), x, math.slices(weights), kept=1)
    return y, stacked(transform)


def gates_and_outputs(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, Any]:
    """Computes transform gates and outputs of all layers, each `[depth, units, examples]`; see `infer`."""
    transform, outputs = scan(_layer(math, "gate", "y"), x, math.slices(weights), kept=2)[1]
    return stacked(transform), stacked(outputs)


def lesioned(x: Any, weights: Weights, math: LayerMath, closed: Any, first: Any) -> Any:
    """Computes the output of the last layer with some gates closed, starting at a given layer.

    Args:
        x: input of layer `first`, `[units, examples]`, in the gate's dtype.
        weights: see `infer`.
        math: see `infer`.
        closed: bool, `[depth, units]`: units with closed gates.
        first: int or int tensor: index of the first layer to compute; `depth` computes none.

    Returns:
        y, `[units, examples]`.
    """
    closed, slices = ops.convert_to_tensor(closed, dtype="bool"), math.slices(weights)

    def body(row: Any, x: Any) -> Any:
        block, gate = math.block_and_gate(x, tuple(ops.take(array, row, axis=0) for array in slices))
        return close(blend(block, x, gate, None), x, ops.expand_dims(ops.take(closed, row, axis=0), -1))

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
        y, `[units, examples]`.
    """
    if not rematerialize:
        return _differentiable(_forward, _backward, x, weights, math)
    length = isqrt(weights.depth)
    head = weights.depth % length
    if head:
        x = _differentiable(_forward, _backward, x, Weights.of(array[:head] for array in weights.arrays), math)
    segments = Weights.of(ops.reshape(array[head:], (-1, length, *array.shape[1:])) for array in weights.arrays)
    return _differentiable(_forward_segments, _backward_segments, x, segments, math)


def _layer(math: LayerMath, *saved: str) -> Callable[[Any, Any], tuple[Any, tuple]]:
    """Returns the body of a loop over layers that saves the named tensors: "x", "block", "gate", "y"."""

    def body(x: Any, layer: Any) -> tuple[Any, tuple]:
        block, gate = math.block_and_gate(x, layer)
        y = blend(block, x, gate, None)
        values = {"x": x, "block": block, "gate": gate, "y": y}
        return y, tuple(values[name] for name in saved)

    return body


def _differentiable(forward: Callable, backward: Callable, x: Any, weights: Weights, math: LayerMath) -> Any:
    @ops.custom_gradient
    def run(x: Any, *weights: Any) -> Any:
        y, saved = forward(x, Weights.of(weights), math)

        def gradient(*arguments: Any, upstream: Any = None) -> tuple:
            if upstream is None:
                return backward(*arguments, saved, Weights.of(weights), math)
            # PyTorch passes x and the weights, and the upstream gradient by name.
            x, *tracked = arguments
            values = forward(x, Weights.of(tracked), math)[1] if _is_differentiated_again() else saved
            return backward(upstream, values, Weights.of(tracked), math)

        return y, gradient

    return run(x, *weights.arrays)


def _is_differentiated_again() -> bool:
    """Tests whether PyTorch records this backward pass, for which saved tensors are constants."""
    import torch

    return torch.is_grad_enabled()


def _forward(x: Any, weights: Weights, math: LayerMath) -> tuple[Any, tuple]:
    return scan(_layer(math, "x", "block", "gate"), x, math.slices(weights), kept=3)


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
        return upstream, sums if at_once else weight_gradients(x, sums)

    def weight_gradients(x: Any, sums: tuple) -> tuple:
        kernels, biases = zip(*(math.weight_gradients(x, part) for part in sums), strict=True)
        return (*kernels, *biases)

    # A compiled loop is faster with one product for all layers after it, a Python loop with one for each.
    at_once = is_traced()
    count = len(weights.kernels)
    kept = count if at_once else 2 * count
    upstream, found = scan(body, upstream, (*saved, *weights.kernels), kept=kept, reverse=True)
    found = weight_gradients(saved[0], found) if at_once else tuple(map(stacked, found))
    kernels, biases = found[:count], found[count:]
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
