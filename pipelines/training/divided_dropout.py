"""Dropout on several devices, with the masks of one device.

Imports Keras only, like `pipelines.training.data_parallel`; `pipelines.training.mirrored_dropout` is for TensorFlow.
"""

from collections.abc import Callable
from typing import Any

import keras

from pipelines.training.data_parallel import AXIS


class DividedDropout(keras.layers.Layer):
    """A dropout layer for a program that each device runs on its own part of a batch. JAX only.

    Each device draws the mask of the whole batch and applies its part.

    Args:
        dropout: the layer, whose rate and seed are used.

    Example:
        divided = DividedDropout(keras.layers.Dropout(0.5, seed=0))
    """

    def __init__(self, dropout: keras.layers.Dropout) -> None:
        super().__init__(name=dropout.name, dtype=dropout.dtype_policy)
        self.dropout = dropout

    def call(self, inputs: Any, training: bool = False) -> Any:
        """Drops units in training, which must be divided among devices."""
        if not training:
            return inputs
        device, devices = self.place()
        rows, *shape = keras.ops.shape(inputs)
        mask = self.drawn(keras.ops.ones((rows * devices, *shape), inputs.dtype))
        return inputs * keras.ops.slice(mask, (device * rows, *[0] * len(shape)), (rows, *shape))

    def place(self) -> tuple[Any, int]:
        """Returns the number of the device that computes, and that of all devices."""
        import jax

        return jax.lax.axis_index(AXIS), jax.lax.axis_size(AXIS)

    def drawn(self, whole: Any) -> Any:
        """Returns the mask of a whole batch, given as ones."""
        return self.dropout(whole, training=True)


def divided(net: keras.Model) -> keras.Model | None:
    """Returns a functional net with the same weights and seeds whose dropout may be divided among devices.

    Args:
        net: the net.

    Returns:
        The net, or None if other state than the seeds of dropout layers depends on the whole batch, or layers are
        nested.

    Example:
        divided(from_preset("mnist_conv_16"))
    """
    if has_other_state(net, keras.layers.Dropout):
        return None
    return with_dropout(net, DividedDropout) if net.non_trainable_variables else net


def with_dropout(net: keras.Model, form: Callable[[keras.layers.Dropout], keras.layers.Layer]) -> keras.Model:
    """Returns a functional net with the same weights and seeds, and another form of its dropout layers.

    Args:
        net: the net.
        form: returns the new form of a layer.

    Example:
        with_dropout(from_preset("cifar10_19"), DividedDropout)
    """

    def replaced(layer: keras.layers.Layer) -> keras.layers.Layer:
        return form(layer) if isinstance(layer, keras.layers.Dropout) else layer

    return keras.models.clone_model(net, clone_function=replaced)


def has_other_state(net: keras.Model, kind: type[keras.layers.Layer]) -> bool:
    """Returns whether a net has state outside its own layers of a kind; layers within layers are not its own."""
    known = {id(variable) for layer in net.layers if isinstance(layer, kind) for variable in layer.variables}
    return any(id(variable) not in known for variable in net.non_trainable_variables)
