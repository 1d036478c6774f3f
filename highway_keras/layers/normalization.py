"""Batch normalization in training, fused into few passes over memory with TensorFlow on a CPU.

Op by op, TensorFlow reads and writes each feature map some twenty times in the two passes. Its `FusedBatchNormV3` needs
only a few passes over memory, but is slow unless the number of channels is a multiple of `VECTOR`; for other numbers,
XLA compiles the normalization instead.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import keras
from keras import ops

from highway_keras.layers import replicas
from highway_keras.layers.base import expand_mask

VECTOR = 16
"""Channels that TensorFlow's kernel processes at once."""


class Normalized(NamedTuple):
    """Maps normalized over the batch, and their statistics."""

    outputs: Any
    """Same shape and dtype as the inputs."""
    mean: Any
    """`(channels,)`, float32."""
    variance: Any
    """Population variance, `(channels,)`, float32."""
    gradient: Callable[[Any], tuple[Any, Any, Any]]
    """Function from the gradient of the outputs to those of inputs, gain and offset; that of the inputs includes the
    path through the statistics."""


def is_compiled(inputs: Any) -> bool:
    """Tests whether a traced function computes maps of known size on a CPU with TensorFlow.

    Accelerators were not measured. For feature maps of varying size, compilation costs more than it saves.

    Args:
        inputs: maps, `(batch, ..., channels)`.
    """
    if keras.backend.backend() != "tensorflow" or None in inputs.shape[1:]:
        return False
    import tensorflow as tf

    devices = {device.device_type for device in tf.config.list_physical_devices()}
    return devices == {"CPU"} and not tf.executing_eagerly()


def normalized(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Normalized:
    """Normalizes maps by mean and variance of each channel over all other axes, with a gradient for the caller to use.

    Args:
        inputs: maps, `(batch, ..., channels)`, float32 or narrower.
        gamma: gain, `(channels,)`, float32.
        beta: offset, `(channels,)`, float32.
        epsilon: added to the variance.

    Example:
        y, mean, variance, gradient = normalized(x, gamma, beta, 1e-3)
    """
    function = _by_xla if inputs.shape[-1] % VECTOR else _by_kernel
    return function(inputs, gamma, beta, epsilon)


def _by_kernel(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Normalized:
    import tensorflow as tf

    def as_maps(array: Any) -> Any:
        # The kernel takes longer for one long map than for the images of a batch.
        return array if len(array.shape) == 4 else tf.reshape(array, (1, -1, 1, array.shape[-1]))

    options = {"epsilon": epsilon, "is_training": True}
    found = tf.raw_ops.FusedBatchNormV3(x=as_maps(inputs), scale=gamma, offset=beta, mean=[], variance=[], **options)
    count = ops.cast(tf.size(inputs) // inputs.shape[-1], gamma.dtype)

    @tf.custom_gradient
    def moments(inputs: Any) -> Any:
        # The kernel returns the sample variance, and normalizes by that of the population.
        variance = found.batch_variance * (ops.maximum(count - 1, 1) / count)

        def slopes(mean_slope: Any, variance_slope: Any) -> Any:
            # The kernel's own gradient ignores its statistics, which the gradient of a gradient passes through.
            centred = ops.cast(inputs, "float32") - found.batch_mean
            return ops.cast((mean_slope + 2 * variance_slope * centred) / count, inputs.dtype)

        return (found.batch_mean, variance), slopes

    mean, variance = moments(inputs)

    def gradient(upstream: Any) -> tuple[Any, Any, Any]:
        saved = {f"reserve_space_{number}": getattr(found, f"reserve_space_{number}") for number in (1, 2, 3)}
        slopes = tf.raw_ops.FusedBatchNormGradV3(
            y_backprop=as_maps(upstream), x=as_maps(inputs), scale=gamma, **saved, **options
        )
        return tf.reshape(slopes.x_backprop, tf.shape(inputs)), slopes.scale_backprop, slopes.offset_backprop

    return Normalized(tf.reshape(found.y, tf.shape(inputs)), mean, variance, gradient)


def _by_xla(inputs: Any, gamma: Any, beta: Any, epsilon: float) -> Normalized:
    moments, outputs, gradient = _compiled(epsilon)
    mean, variance = moments(inputs)
    scale = gamma * ops.rsqrt(variance + epsilon)
    return Normalized(
        outputs(inputs, scale, beta - mean * scale),
        mean,
        variance,
        lambda upstream: gradient(upstream, inputs, gamma, mean, variance),
    )


@functools.cache
def _compiled(epsilon: float) -> tuple[Callable[..., Any], Callable[..., Any], Callable[..., Any]]:
    """Returns the compiled passes: mean and variance, scaled maps, and the gradients of maps, gain and offset."""
    import tensorflow as tf

    @tf.function(jit_compile=True)
    def moments(inputs: Any) -> Any:
        inputs = ops.cast(inputs, "float32")
        axes = range(len(inputs.shape) - 1)
        mean = ops.mean(inputs, axes)
        return mean, ops.mean(ops.square(inputs - mean), axes)

    @tf.function(jit_compile=True)
    def outputs(inputs: Any, scale: Any, offset: Any) -> Any:
        return ops.cast(ops.cast(inputs, "float32") * scale + offset, inputs.dtype)

    @tf.function(jit_compile=True)
    def gradient(upstream: Any, inputs: Any, gamma: Any, mean: Any, variance: Any) -> Any:
        wide, centred = ops.cast(upstream, "float32"), ops.cast(inputs, "float32") - mean
        axes = range(len(inputs.shape) - 1)
        inverse = ops.rsqrt(variance + epsilon)
        offset_slope, gain_slope = ops.sum(wide, axes), ops.sum(wide * centred, axes) * inverse
        count = ops.cast(tf.size(inputs) // inputs.shape[-1], "float32")
        through = wide - offset_slope / count - centred * (inverse * gain_slope / count)
        return ops.cast(gamma * inverse * through, inputs.dtype), gain_slope, offset_slope

    return moments, outputs, gradient


@keras.saving.register_keras_serializable(package="highway_keras")
class FusedBatchNormalization(keras.layers.BatchNormalization):
    """Keras's batch normalization, faster in training with TensorFlow on a CPU; arguments and weights are the same.

    Vectors, masked maps, maps of varying size and frozen layers are left to Keras, like other backends and devices.
    Where `tf.distribute` divides a batch among replicas, statistics are always those of the whole batch.

    Example:
        x = FusedBatchNormalization(momentum=0.9)(x)
    """

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Normalizes by the statistics of the batch in training, else by the running ones."""
        # Renormalization, which has more weights, is left to Keras.
        if training and self.trainable and len(self.weights) <= 4 and replicas.count() > 1:
            return self._over_replicas(inputs, mask)
        if not (training and mask is None and self._has_plain_form(inputs) and is_compiled(inputs)):
            return super().call(inputs, training=training, mask=mask)
        outputs, mean, variance = _differentiable(self.epsilon)(inputs, self.gamma.value, self.beta.value)
        self.follow(mean, variance)
        return ops.cast(outputs, self.compute_dtype)

    def follow(self, mean: Any, variance: Any) -> None:
        """Moves the running statistics towards those of a batch."""
        for variable, moment in ((self.moving_mean, mean), (self.moving_variance, variance)):
            variable.assign_sub((variable - moment) * (1.0 - self.momentum))

    def _over_replicas(self, inputs: Any, mask: Any) -> Any:
        inputs = ops.cast(inputs, keras.backend.result_type(inputs.dtype, "float32"))
        mask = None if mask is None else expand_mask(mask, len(inputs.shape))
        axes = list(range(len(inputs.shape)))
        axis = axes.pop(self.axis)
        mean, variance = replicas.moments(inputs, axes, mask)
        self.follow(mean, variance)
        outputs = ops.batch_normalization(
            inputs, mean, variance, axis, offset=self.beta, scale=self.gamma, epsilon=self.epsilon
        )
        return ops.cast(outputs, self.compute_dtype)

    def _has_plain_form(self, inputs: Any) -> bool:
        # Four weights: gain, offset and running statistics.
        plain = len(self.weights) == 4 and self.trainable and not self.synchronized
        rank = len(inputs.shape)
        return plain and rank > 2 and self.axis in {-1, rank - 1} and self.variable_dtype == "float32"


@functools.cache
def _differentiable(epsilon: float) -> Callable[..., Any]:
    import tensorflow as tf

    @tf.custom_gradient
    def run(inputs: Any, gamma: Any, beta: Any) -> Any:
        found = normalized(inputs, gamma, beta, epsilon)
        return tuple(found[:3]), lambda upstream, *_: found.gradient(upstream)

    return run
