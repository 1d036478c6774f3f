"""Gate and blend fused into one pass over memory each way, for mixed-precision training with TensorFlow on a CPU.

Op by op, TensorFlow widens the products of a mixed policy to float32, then reads and writes each feature map some ten
times in the forward pass and more in the backward pass, which takes longer than the convolutions. Here XLA compiles the
elementwise part alone, with a hand-written gradient: float32 values stay in registers, and only narrow tensors are
saved. The convolutions stay outside: on a CPU, TensorFlow's own (oneDNN) are faster than XLA's.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from highway_keras.layers.equations import DERIVATIVES, blend, gradients
from highway_keras.layers.gate import gate_dtype


class Activations(NamedTuple):
    """The activations of H and T."""

    block: Callable[[Any], Any]
    gate: Callable[[Any], Any]


def is_faster(inputs: Any, activations: Activations) -> bool:
    """Tests whether `fused_blend` applies and saves time.

    It does not in float32 (2% faster in a large net, 15% slower in a small one), outside a traced function, or for
    feature maps of varying size, where compilation costs more than it saves. Accelerators were not measured and are
    excluded.

    Args:
        inputs: x, `(batch, ..., channels)`, in the layer's compute dtype.
        activations: activations of H and T.
    """
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    known = all(activation in DERIVATIVES for activation in activations) and None not in inputs.shape[1:]
    if keras.backend.backend() != "tensorflow" or dtype == gate_dtype(dtype) or not known:
        return False
    import tensorflow as tf

    devices = {device.device_type for device in tf.config.list_physical_devices()}
    return devices == {"CPU"} and not tf.executing_eagerly()


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


@functools.cache
def _compiled(activations: Activations) -> Callable[..., Any]:
    import tensorflow as tf

    def widened(block: Any, gate: Any, bias: Any, gate_bias: Any, inputs: Any) -> tuple[Any, Any, Any]:
        """Returns H, T and x in the dtype of the biases."""
        block, gate, inputs = (ops.cast(array, bias.dtype) for array in (block, gate, inputs))
        return activations.block(block + bias), activations.gate(gate + gate_bias), inputs

    @tf.function(jit_compile=True)
    def forward(*arguments: Any) -> Any:
        block, transform, inputs = widened(*arguments)
        return ops.cast(blend(block, inputs, transform, None), arguments[-1].dtype)

    @tf.function(jit_compile=True)
    def backward(upstream: Any, *arguments: Any) -> list[Any]:
        """Returns the gradients of the two products and of x."""
        block, transform, inputs = widened(*arguments)
        derivatives = DERIVATIVES[activations.block], DERIVATIVES[activations.gate]
        wide = gradients(ops.cast(upstream, inputs.dtype), block, inputs, transform, derivatives)
        return [ops.cast(gradient, upstream.dtype) for gradient in wide]

    @tf.custom_gradient
    def run(*arguments: Any) -> Any:
        def gradient(upstream: Any) -> tuple[Any, ...]:
            *products, inputs = backward(upstream, *arguments)
            # TensorFlow fuses this op with the gradient of the convolution's kernel.
            sums = (tf.raw_ops.BiasAddGrad(out_backprop=product) for product in products)
            biases = [ops.cast(bias, arguments[2].dtype) for bias in sums]
            return *products, *biases, inputs

        return forward(*arguments), gradient

    return run
