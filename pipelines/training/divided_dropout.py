"""Dropout on several devices, with the masks of one device. JAX only.

Imports Keras only, like `pipelines.training.data_parallel`.
"""

from typing import Any

import keras

from pipelines.training.data_parallel import AXIS


class DividedDropout(keras.layers.Layer):
    """A dropout layer for a program that each device runs on its own part of a batch.

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
        """Drops units in training, in which the axis of the devices must be there."""
        if not training:
            return inputs
        import jax

        rows = inputs.shape[0]
        whole = keras.ops.ones((rows * jax.lax.axis_size(AXIS), *inputs.shape[1:]), inputs.dtype)
        mask = self.dropout(whole, training=True)
        return inputs * jax.lax.dynamic_slice_in_dim(mask, jax.lax.axis_index(AXIS) * rows, rows)


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

    def replaced(layer: keras.layers.Layer) -> keras.layers.Layer:
        return DividedDropout(layer) if isinstance(layer, keras.layers.Dropout) else layer

    if has_other_state(net, keras.layers.Dropout):
        return None
    return keras.models.clone_model(net, clone_function=replaced) if net.non_trainable_variables else net


def has_other_state(net: keras.Model, kind: type[keras.layers.Layer]) -> bool:
    """Returns whether a net has state outside its own layers of a kind; layers within layers are not its own."""
    known = {id(variable) for layer in net.layers if isinstance(layer, kind) for variable in layer.variables}
    return any(id(variable) not in known for variable in net.non_trainable_variables)
