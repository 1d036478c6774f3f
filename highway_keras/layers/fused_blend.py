"""Gate and blend fused into one pass over memory each way, for mixed-precision training with TensorFlow on a CPU.

Op by op, TensorFlow widens the products of a mixed policy to float32, then reads and writes each feature map some ten
times in the forward pass and more in the backward pass, which takes longer than the convolutions. Here XLA compiles the
elementwise part alone, with a hand-written gradient: float32 values stay in registers, and only narrow tensors are
saved. The convolutions stay outside: on a CPU, TensorFlow's own (oneDNN) are faster than XLA's. So do the reductions of
batch normalization (see `normalization`), but the normalization itself takes place in the same pass as the blend.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from highway_keras.layers.equations import DERIVATIVES, blend, gradients
from highway_keras.layers.gate import gate_dtype
from highway_keras.layers.normalization import is_compiled, normalized


class Activations(NamedTuple):
    """The activations of H and T."""

    block: Callable[[Any], Any]
    gate: Callable[[Any], Any]


def is_faster(inputs: Any, activations: Activations) -> bool:
    """Tests whether `fused_blend` applies and saves time.

    It does not in float32 (slower in a small net, hardly faster in a large one), nor where `is_compiled` is false.

    Args:
        inputs: x, `(batch, ..., channels)`, in the layer's compute dtype.
        activations: activations of H and T.
    """
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    known = all(activation in DERIVATIVES for activation in activations)
    return dtype != gate_dtype(dtype) and known and is_compiled(inputs)


def fused_blend(products: tuple[Any, Any], biases: tuple[Any, Any], inputs: Any, activations: Activations) -> Any:
    """Computes y = T * H + (1 - T) * x, with T, H and the sum in the dtype of the biases.

    Args:
        products: pre-activations of H and T without their biases, `(batch, ..., channels)`.
        biases: biases of H and T, `(channels,)`, float32 or wider.
        inputs: x, of the shape and dtype of the products.
        activations: activations of H and T, both in `DERIVATIVES`.

    Returns:
        y, of the shape and dtype of x. Bias gradients are summed from the narrow gradients of the products, and so
        have the precision of the kernel gradients.

    Example:
        y = fused_blend((block, gate), biases, x, Activations(keras.activations.relu, keras.activations.sigmoid))
    """
    return _compiled(activations)(*products, *biases, inputs)


def normalized_fused_blend(
    products: tuple[Any, Any], normalization: tuple[Any, Any], gate_bias: Any, inputs: Any, options: tuple[Any, float]
) -> tuple[Any, Any, Any]:
    """Computes `fused_blend` with H normalized over the batch; gradients pass through the statistics.

    Args:
        products: pre-activations of H and T, as in `fused_blend`.
        normalization: gain and offset, `(channels,)`, float32.
        gate_bias: bias of T, `(channels,)`, float32.
        inputs: x.
        options: the activations, and the epsilon added to the variance.

    Returns:
        y, and mean and variance of the products of H, `(channels,)`, float32, for the running statistics.

    Example:
        y, mean, variance = normalized_fused_blend((block, gate), (gamma, beta), bias, x, (activations, 1e-3))
    """
    return _compiled_normalized(*options)(*products, *normalization, gate_bias, inputs)


@functools.cache
def _compiled_normalized(activations: Activations, epsilon: float) -> Callable[..., Any]:
    import tensorflow as tf

    forward, backward = _passes(activations)

    @tf.custom_gradient
    def run(*tensors: Any) -> Any:
        block, gate, gamma, beta, gate_bias, inputs = tensors
        found = normalized(block, gamma, beta, epsilon)
        scale = gamma * ops.rsqrt(found.variance + epsilon)
        arguments = (block, gate, beta - found.mean * scale, gate_bias, inputs, scale)

        def gradient(upstream: Any, *_: Any) -> tuple[Any, ...]:
            block_gradient, gate_gradient, inputs_gradient = backward(upstream, *arguments)
            block_gradient, *learned = found.gradient(block_gradient)
            bias_gradient = _added(gate_gradient, gate_bias.dtype)
            return block_gradient, gate_gradient, *learned, bias_gradient, inputs_gradient

        return (forward(*arguments), found.mean, found.variance), gradient

    return run


@functools.cache
def _passes(activations: Activations) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Returns the compiled passes: the first computes y, the second the gradients of both pre-activations and of x."""
    import tensorflow as tf

    def widened(*tensors: Any) -> tuple[Any, Any, Any]:
        """Returns H, T and x in the dtype of the biases; a scale of H may follow the five tensors."""
        block, gate, bias, gate_bias, inputs, *scale = tensors
        block, gate, inputs = (ops.cast(array, bias.dtype) for array in (block, gate, inputs))
        block = block * scale[0] if scale else block
        return activations.block(block + bias), activations.gate(gate + gate_bias), inputs

    @tf.function(jit_compile=True, autograph=False)
    def forward(*arguments: Any) -> Any:
        block, transform, inputs = widened(*arguments)
        return ops.cast(blend(block, inputs, transform, None), arguments[4].dtype)

    @tf.function(jit_compile=True, autograph=False)
    def backward(upstream: Any, *arguments: Any) -> list[Any]:
        block, transform, inputs = widened(*arguments)
        derivatives = DERIVATIVES[activations.block], DERIVATIVES[activations.gate]
        wide = gradients(ops.cast(upstream, inputs.dtype), block, inputs, transform, derivatives)
        return [ops.cast(gradient, upstream.dtype) for gradient in wide]

    return forward, backward


@functools.cache
def _compiled(activations: Activations) -> Callable[..., Any]:
    import tensorflow as tf

    forward, backward = _passes(activations)

    @tf.custom_gradient
    def run(*arguments: Any) -> Any:
        def gradient(upstream: Any) -> tuple[Any, ...]:
            *products, inputs = backward(upstream, *arguments)
            biases = [_added(product, arguments[2].dtype) for product in products]
            return *products, *biases, inputs

        return forward(*arguments), gradient

    return run


def _added(gradient: Any, dtype: Any) -> Any:
    """Adds the gradients of a bias over all axes but the last: narrow numbers, in float32."""
    import tensorflow as tf

    if _adds_in_float32(gradient.dtype):
        # TensorFlow fuses this op with the gradient of the convolution's kernel.
        return ops.cast(tf.raw_ops.BiasAddGrad(out_backprop=gradient), dtype)
    return ops.sum(ops.cast(gradient, dtype), range(len(gradient.shape) - 1))


@functools.cache
def _adds_in_float32(dtype: Any) -> bool:
    """Tests whether `BiasAddGrad` adds numbers of a narrow type in float32.

    On CPUs without instructions for bfloat16, it adds bfloat16 in itself: 256 + 1 is 256.
    """
    import tensorflow as tf

    with tf.init_scope():
        ones = tf.ones((1, 1024, 1024, 1), dtype) / 1024
        return float(tf.raw_ops.BiasAddGrad(out_backprop=ones)[0]) == 1024
