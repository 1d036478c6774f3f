"""Whether XLA compiles the programs that read a model."""

from collections.abc import Iterator

import keras

from highway_keras.layers import HighwayStack


def pays(model: keras.Model) -> bool:
    """Whether a program around a model should be compiled by XLA.

    JAX knows nothing else. With TensorFlow on a CPU it pays for the loop of a stack, while its convolutions are several
    times slower than TensorFlow's own, and a net of many layers takes it long to compile (docs/log.md).

    Args:
        model: the model that is read.
    """
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    accelerated = any(device.device_type != "CPU" for device in tf.config.list_physical_devices())
    return accelerated or any(isinstance(layer, HighwayStack) for layer in leaves(model))


def leaves(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """The layers of a model and of the models inside it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from leaves(layer)
        else:
            yield layer
