"""The dense highway layer."""

from typing import Any

import keras
from keras import ops

from highway_keras.layers.affine import AffineHighway
from highway_keras.layers.base import Shape


@keras.saving.register_keras_serializable(package="highway_keras")
class Highway(AffineHighway):
    """Dense highway layer on the last axis: y = T * H + (1 - T) * x.

    H = activation(W x + b) is the block state and T = gate_activation(W_T x + b_T) the transform gate. The output has
    the shape of the input, so there is no `units` argument. Gates and sum are computed in float32 under every dtype
    policy (float64 under float64).

    Args:
        activation: activation of the block state H.
        gate_activation: activation of the gates; must be elementwise with values in [0, 1].
        transform_bias: initial bias of the transform gate, negative so that the layer initially carries its input;
            "auto" derives it from `depth` (`highway_keras.layers.auto_transform_bias`). An initializer works too, but
            random draws are not checked for dead gates.
        depth: number of layers of the whole net; read for `transform_bias="auto"` only.
        carry_gate: "coupled" for C = 1 - T, or "separate" for a gate with its own weights,
            C = gate_activation(W_C x + b_C), whose bias starts at minus the transform gate's, so that it is open.
        use_bias: whether H has a bias b. The gates always have one.
        kernel_initializer: initializer of H's kernel.
        transform_initializer: initializer of the gates' kernels.
        bias_initializer: initializer of H's bias.
        kernel_regularizer: regularizer of H's kernel.
        transform_regularizer: regularizer of the gates' kernels.
        bias_regularizer: regularizer of H's bias.
        kernel_constraint: constraint on H's kernel.
        transform_constraint: constraint on the gates' kernels.
        bias_constraint: constraint on H's bias.
        batch_normalization: whether H = activation(BatchNormalization(W x)), without b.
        normalization_epsilon: epsilon of the batch normalization. PyTorch's default is 1e-5.
        normalization_momentum: weight of the past in its moving averages. PyTorch's default is 0.9, which it calls a
            momentum of 0.1.
        dropout: rate at which transform gates are dropped in training; a dropped unit carries its input. Inference
            uses T * (1 - rate).
        seed: seed of the dropout.
        lora_rank: rank of low-rank updates of the kernels; if given, building the layer calls `enable_lora`.
        lora_alpha: factor of these updates; see `enable_lora`.
        **kwargs: `name`, `trainable`, `dtype` and `activity_regularizer` of a Keras layer.

    Input shape:
        Rank 2 or more, `(batch, ..., units)`; `units` must be defined. Building the layer fixes the rank.

    Output shape:
        Same as the input.

    Raises:
        ValueError: if an argument is out of range, or the gate activation cannot be a gate.

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
