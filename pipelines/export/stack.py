"""The inference form of a stack, built from the operations that run fastest in ONNX Runtime."""

from collections.abc import Iterable
from typing import Any

import keras
import tensorflow as tf

from highway_keras import HighwayStack
from highway_keras.layers.equations import blend_for_inference
from highway_keras.layers.recording import is_recording, record, start_call

UNROLLED = 100
# Part of the names of the loops in the graph.
LOOP = "highway_layers"


def for_inference(model: keras.Model) -> keras.Model:
    """Copies a net with its weights, replacing its stacks with their inference form.

    Args:
        model: a functional or sequential model in float32; it is not changed.

    Returns:
        A new model.

    Example:
        for_inference(in_float32(load_model(run)))(images, training=False)
    """

    def copy(layer: keras.layers.Layer) -> keras.layers.Layer:
        kind = InferenceStack if type(layer) is HighwayStack else type(layer)
        return kind.from_config(layer.get_config())

    copied = keras.models.clone_model(model, clone_function=copy, recursive=True)
    copied.set_weights(model.get_weights())
    return copied


class InferenceStack(HighwayStack):
    """Inference form of a `HighwayStack`, with the same arguments and weights."""

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Applies all layers, unrolled or in a loop."""
        del training, mask
        x = inputs if len(inputs.shape) == 2 else tf.reshape(inputs, (-1, inputs.shape[-1]))
        bias = tf.zeros_like(self.transform_bias) if self.bias is None else self.bias
        kinds = (self.kernel, bias, self.transform_kernel, self.transform_bias)
        weights = [tf.convert_to_tensor(kind) for kind in kinds]
        # An activation that mixes elements may do so along any axis, so it must get the same shape as in single layers.
        shape = None if self._elementwise or len(inputs.shape) == 2 else keras.ops.shape(inputs)
        through = self._unrolled if self.depth <= UNROLLED else self._loop
        x, gates = through(x, weights, is_recording(), shape)
        if gates is not None:
            # Only means over units are read, so the last axis has length one.
            gates = tf.reshape(gates, (*tf.unstack(tf.shape(inputs))[:-1], self.depth, 1))
            record(start_call(self.name, self.depth), self, gates, depth=self.depth)
        return x if len(inputs.shape) == 2 else tf.reshape(x, tf.shape(inputs))

    def _unrolled(self, x: Any, weights: list[Any], recorded: bool, shape: Any) -> tuple[Any, Any]:
        gates = []
        for layer in zip(*(tf.unstack(array) for array in weights), strict=True):
            x, gate = self._layer(x, shape, layer)
            gates.append(gate)
        # One mean operation for all layers, because the overhead of each operation exceeds its arithmetic.
        return x, tf.reduce_mean(tf.stack(gates, axis=1), axis=-1) if recorded else None

    def _loop(self, x: Any, weights: list[Any], recorded: bool, shape: Any) -> tuple[Any, Any]:
        width = x.shape[-1]
        # A product, because ONNX Runtime cannot take the mean of an empty batch in a loop.
        average = tf.fill((width, 1), 1.0 / width)

        def step(number: Any, x: Any, *means: Any) -> tuple[Any, ...]:
            x, gate = self._layer(x, shape, [tf.gather(array, number) for array in weights])
            return number + 1, x, *(array.write(number, tf.matmul(gate, average)[:, 0]) for array in means)

        means = (tf.TensorArray(tf.float32, self.depth, element_shape=(None,)),) if recorded else ()
        _, x, *means = tf.while_loop(
            lambda number, *_: number < self.depth,
            step,
            (0, x, *means),
            maximum_iterations=self.depth,
            name=LOOP,
        )
        return x, tf.transpose(means[0].stack()) if recorded else None

    def _layer(self, x: Any, shape: Any, weights: Iterable[Any]) -> tuple[Any, Any]:
        kernel, bias, transform_kernel, transform_bias = weights
        # Two products, because ONNX Runtime fuses each with its bias and activation; it could not with a joint product.
        # Examples come first, because another layout would transpose the weights in each step of a loop.
        sums = tf.nn.bias_add(tf.matmul(x, kernel), bias)
        block = self.activation(sums if shape is None else tf.reshape(sums, shape))
        block = block if shape is None else tf.reshape(block, (-1, x.shape[-1]))
        gate = self.gate_activation(tf.nn.bias_add(tf.matmul(x, transform_kernel), transform_bias))
        return blend_for_inference(block, x, gate), gate
