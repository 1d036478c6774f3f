"""The dense highway layer."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers.base import BaseHighway, Shape


@keras.saving.register_keras_serializable(package="highway_keras")
class Highway(BaseHighway):
    """Dense highway layer on the last axis: y = T * H + (1 - T) * x.

    H = activation(W x + b) is the state of the block, T = gate_activation(W_T x + b_T) the transform gate. There is no
    size argument: the output has the shape of the input. Gates and sum are computed in float32 under every dtype
    policy (float64 under float64).

    Args:
        activation: of the block state H.
        gate_activation: of the gates; must act on each element alone and give values in [0, 1].
        transform_bias: initial bias of the transform gate, negative so that the layer starts by carrying its input;
            "auto" takes it from `depth` (`highway_keras.layers.auto_transform_bias`).
        depth: number of layers of the whole net; read by `transform_bias="auto"` only.
        carry_gate: "coupled" for C = 1 - T, or "separate" for a gate with weights of its own,
            C = gate_activation(W_C x + b_C), whose bias starts at `-transform_bias`, open.
        kernel_initializer: of H's kernel.
        transform_initializer: of the kernels of the gates.
        bias_initializer: of H's bias.
        kernel_regularizer: of H's kernel.
        transform_regularizer: of the kernels of the gates.
        kernel_constraint: of H's kernel.
        transform_constraint: of the kernels of the gates.
        batch_normalization: H = activation(BatchNormalization(W x)), without b.
        dropout: rate at which units drop their transform gate in training, so that they carry; inference uses
            T * (1 - rate).
        seed: of the dropout.
        **kwargs: `name`, `trainable` and `dtype` of a Keras layer.

    Input shape:
        Rank 2 or more, `(batch, ..., units)`; `units` defined.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an argument out of its range, and for a gate activation that cannot be a gate.

    Example:
        inputs = keras.Input((784,))
        x = keras.layers.Dense(50)(inputs)
        for _ in range(20):
            x = highway_keras.Highway(transform_bias="auto", depth=22)(x)
        model = keras.Model(inputs, keras.layers.Dense(10)(x))

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.
    """

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[-1], input_shape[-1])

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        return ops.matmul(inputs, kernel)
