"""Gate and blend of narrow maps in one pass over memory each way, for training with TensorFlow on a CPU.

Op by op, TensorFlow widens the products of a mixed policy to float32, and then reads and writes each map some ten times
on the way forward and more on the way back, which takes longer than the convolutions. Here XLA compiles the elementwise
part alone, and its gradient is written out, so that float32 never leaves the processor and only what is narrow is kept.
The convolutions stay outside: oneDNN's are several times faster than XLA's on a CPU (docs/log.md).
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from highway_keras.layers.derivatives import DERIVATIVES
from highway_keras.layers.equations import blend, gradients
from highway_keras.layers.gate import gate_dtype


class Activations(NamedTuple):
    """The two functions of a layer."""

    block: Callable[[Any], Any]
    gate: Callable[[Any], Any]


def pays(inputs: Any, activations: Activations) -> bool:
    """Whether `blended` can be used, and is faster.

    Not in float32, where it gained 2 % in a large net and lost 15 % in a small one. Not outside of a traced function,
    and not for maps whose size differs from call to call: compiling would take longer than it saves. Not where there is
    an accelerator: it was not measured there.

    Args:
        inputs: x, `(batch, ..., channels)`, in the layer's compute dtype.
        activations: of H and T.

    Returns:
        Whether to call `blended`.
    """
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    known = all(activation in DERIVATIVES for activation in activations) and None not in inputs.shape[1:]
    if keras.backend.backend() != "tensorflow" or dtype == gate_dtype(dtype) or not known:
        return False
    import tensorflow as tf

    devices = {device.device_type for device in tf.config.list_physical_devices()}
    return devices == {"CPU"} and not tf.executing_eagerly()


def blended(products: tuple[Any, Any], biases: tuple[Any, Any], inputs: Any, activations: Activations) -> Any:
    """The output T * H + (1 - T) * x of a layer, with T, H and the sum in the dtype of the biases.

    Args:
        products: what H and T are made of, `(batch, ..., channels)`.
        biases: of H and T, `(channels,)`, float32 or wider.
        inputs: x, of the shape and dtype of the products.
        activations: of H and T, both in `DERIVATIVES`.

    Returns:
        y, of the shape and dtype of x. The gradients of the biases are summed from the narrow gradients of the
        products, and as narrow as those of the kernels.

    Example:
        y = blended((block, gate), (bias, gate_bias), x, Activations(keras.activations.relu, keras.activations.sigmoid))
    """
    return _compiled(activations)(*products, *biases, inputs)


@functools.cache
def _compiled(activations: Activations) -> Callable[..., Any]:
    import tensorflow as tf

    def widened(block: Any, gate: Any, bias: Any, gate_bias: Any, inputs: Any) -> tuple[Any, Any, Any]:
        """H, T and x."""
        block, gate, inputs = (ops.cast(array, bias.dtype) for array in (block, gate, inputs))
        return activations.block(block + bias), activations.gate(gate + gate_bias), inputs

    @tf.function(jit_compile=True)
    def forward(*arguments: Any) -> Any:
        block, transform, inputs = widened(*arguments)
        return ops.cast(blend(block, inputs, transform, None), arguments[-1].dtype)

    @tf.function(jit_compile=True)
    def backward(upstream: Any, *arguments: Any) -> list[Any]:
        """The gradients of the two products and of x."""
        block, transform, inputs = widened(*arguments)
        derivatives = DERIVATIVES[activations.block], DERIVATIVES[activations.gate]
        wide = gradients(ops.cast(upstream, inputs.dtype), block, inputs, transform, derivatives)
        return [ops.cast(gradient, upstream.dtype) for gradient in wide]

    @tf.custom_gradient
    def run(*arguments: Any) -> Any:
        def gradient(upstream: Any) -> tuple[Any, ...]:
            *products, inputs = backward(upstream, *arguments)
            # By this op, because TensorFlow fuses it with the gradient of the convolution's kernel.
            biases = [ops.cast(tf.raw_ops.BiasAddGrad(out_backprop=of), arguments[2].dtype) for of in products]
            return *products, *biases, inputs

        return forward(*arguments), gradient

    return run
