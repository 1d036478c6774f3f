"""A highway connection around any layer."""

import copy
import inspect
from typing import Any

import keras
from keras import ops

from highway_keras.layers.base import BaseHighway, Shape


@keras.saving.register_keras_serializable(package="highway_keras")
class HighwayConnection(BaseHighway):
    """Highway connection around any layer or model: y = T * block(x) + (1 - T) * x.

    A gated skip connection, where a residual net has x + block(x). The transform gate is dense on the last axis of x,
    T = gate_activation(W_T x + b_T), whatever the block computes: a convolution with normalization, attention, a
    recurrent layer, a whole model. Gates and sum are computed in float32 under every dtype policy; the block follows
    its own. `highway_keras.gates` and the lesions of `highway_keras.analysis` treat it like any highway layer, and
    reach highway layers inside the block as well.

    Args:
        block: layer or model whose output has the shape of its input. It receives `training`, and the mask if its
            `call` has that argument.
        gate_activation: activation of the gates; see `Highway`.
        transform_bias: initial bias of the transform gate: a number, "auto" or an initializer; see `Highway`.
        depth: number of layers of the whole net; read for `transform_bias="auto"` only.
        carry_gate: "coupled" for C = 1 - T, or "separate"; see `Highway`.
        transform_initializer: initializer of the gates' kernels.
        transform_regularizer: regularizer of the gates' kernels.
        transform_constraint: constraint on the gates' kernels.
        dropout: rate at which transform gates are dropped in training; see `Highway`.
        seed: seed of the dropout.
        **kwargs: `name`, `trainable`, `dtype` and `activity_regularizer` of a Keras layer.

    Input shape:
        Rank 2 or more, `(batch, ..., units)`; `units` must be defined.

    Output shape:
        Same as the input.

    Raises:
        ValueError: if an argument is out of range; at build time, if the block changes the shape.

    Example:
        block = keras.Sequential([keras.layers.LayerNormalization(), keras.layers.Dense(64, activation="gelu")])
        x = highway_keras.HighwayConnection(block, transform_bias=-1.0)(x)  # x: (batch, steps, 64)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.
    """

    _nests_layers = True

    def __init__(
        self,
        block: keras.layers.Layer,
        *,
        gate_activation: Any = "sigmoid",
        transform_bias: Any = -2.0,
        depth: int | None = None,
        carry_gate: str = "coupled",
        transform_initializer: Any = "he_normal",
        transform_regularizer: Any = None,
        transform_constraint: Any = None,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        if not isinstance(block, keras.layers.Layer):
            raise ValueError(f"`block` must be a Keras layer or model. Received: block={block!r}")
        super().__init__(
            gate_activation=gate_activation,
            transform_bias=transform_bias,
            depth=depth,
            carry_gate=carry_gate,
            transform_initializer=transform_initializer,
            transform_regularizer=transform_regularizer,
            transform_constraint=transform_constraint,
            dropout=dropout,
            seed=seed,
            **kwargs,
        )
        self.block = block
        self._block_takes_mask = "mask" in inspect.signature(block.call).parameters

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {**super().get_config(), "block": keras.saving.serialize_keras_object(self.block)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "HighwayConnection":
        """Creates a layer with a new block from its config."""
        block = keras.saving.deserialize_keras_object(copy.deepcopy(config["block"]))  # Keras empties its argument.
        return super().from_config({**config, "block": block})

    def _build_block(self, input_shape: Shape) -> tuple[Any, ...]:
        # A symbolic call builds blocks of every kind, and yields the shape.
        outputs = self.block(keras.KerasTensor((None, *input_shape[1:]), dtype=self.compute_dtype))
        shape = getattr(outputs, "shape", None)
        if shape is None or len(shape) != len(input_shape) or not all(map(_may_equal, shape, input_shape)):
            raise ValueError(
                "The block must return one tensor of the shape of its input, because the gate blends the two. "
                f"Received: block '{self.block.name}', which maps {tuple(input_shape)} to "
                f"{shape or keras.tree.map_structure(lambda output: output.shape, outputs)}"
            )
        return ()

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        return (input_shape[-1], input_shape[-1])

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        return ops.matmul(inputs, kernel)

    def _block(self, inputs: Any, training: bool | None, mask: Any) -> Any:
        masked = {"mask": mask} if mask is not None and self._block_takes_mask else {}
        return ops.cast(self.block(inputs, training=training, **masked), self._gate_dtype)


def _may_equal(size: int | None, other: int | None) -> bool:
    return None in (size, other) or size == other
