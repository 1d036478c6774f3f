"""Highway layers whose block state H is an affine map with an activation."""

from typing import Any

import keras
from keras import activations, constraints, initializers, ops, regularizers

from highway_keras.layers.adaptation import AdaptableHighway
from highway_keras.layers.base import Shape, expand_mask
from highway_keras.layers.normalization import FusedBatchNormalization


class AffineHighway(AdaptableHighway):
    """Adds H = activation(W x + b), or activation(BatchNormalization(W x)); see `Highway` for the arguments."""

    def __init__(
        self,
        *,
        activation: Any = "relu",
        gate_activation: Any = "sigmoid",
        transform_bias: Any = -2.0,
        depth: int | None = None,
        carry_gate: str = "coupled",
        use_bias: bool = True,
        kernel_initializer: Any = "he_normal",
        transform_initializer: Any = "he_normal",
        bias_initializer: Any = "zeros",
        kernel_regularizer: Any = None,
        transform_regularizer: Any = None,
        bias_regularizer: Any = None,
        kernel_constraint: Any = None,
        transform_constraint: Any = None,
        bias_constraint: Any = None,
        batch_normalization: bool = False,
        normalization_epsilon: float = 1e-3,
        normalization_momentum: float = 0.99,
        dropout: float = 0.0,
        seed: int | None = None,
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        # Keras draws an initializer's seed when it creates it. The block's comes first, as in all published runs.
        kernel_initializer = initializers.get(kernel_initializer)
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
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            **kwargs,
        )
        for argument, value in {"use_bias": use_bias, "batch_normalization": batch_normalization}.items():
            if not isinstance(value, bool):
                raise ValueError(f"`{argument}` must be True or False. Received: {argument}={value!r}")
        self.activation = activations.get(activation)
        self.use_bias = use_bias
        self.kernel_initializer = kernel_initializer
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        self.batch_normalization = batch_normalization
        self.normalization_epsilon = normalization_epsilon
        self.normalization_momentum = normalization_momentum
        if batch_normalization:
            self.normalization = FusedBatchNormalization(
                epsilon=normalization_epsilon,
                momentum=normalization_momentum,
                dtype=self._gate_dtype,
                name="normalization",
            )

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {
            **super().get_config(),
            "activation": activations.serialize(self.activation),
            "use_bias": self.use_bias,
            "kernel_initializer": initializers.serialize(self.kernel_initializer),
            "bias_initializer": initializers.serialize(self.bias_initializer),
            "kernel_regularizer": regularizers.serialize(self.kernel_regularizer),
            "bias_regularizer": regularizers.serialize(self.bias_regularizer),
            "kernel_constraint": constraints.serialize(self.kernel_constraint),
            "bias_constraint": constraints.serialize(self.bias_constraint),
            "batch_normalization": self.batch_normalization,
            "normalization_epsilon": self.normalization_epsilon,
            "normalization_momentum": self.normalization_momentum,
        }

    def _build_block(self, input_shape: Shape) -> tuple[Any, ...]:
        units = int(input_shape[self.unit_axis] or 0)
        self._kernel = self._add_kernel("kernel", self._kernel_shape(input_shape), self.kernel_initializer)
        # Batch normalization would subtract a bias along with the mean, and adds its own offset.
        self.bias = None
        if self.use_bias and not self.batch_normalization:
            self.bias = self._add_bias(
                "bias", units, self.bias_initializer, self.bias_regularizer, self.bias_constraint
            )
        if self.batch_normalization:
            self.normalization.build((*[None] * (len(input_shape) - 1), units))
        if isinstance(self.activation, keras.layers.Layer) and not self.activation.built:
            self.activation.build(input_shape)
        return (self.kernel_initializer,)

    def _block(self, inputs: Any, training: bool | None, mask: Any) -> Any:
        product = self._product(inputs, self.kernel)
        if not self.batch_normalization:
            return self._activated(self._biased(product, self.bias))
        product = self._units_last(product)
        if mask is not None:
            mask = ops.broadcast_to(expand_mask(mask, len(product.shape) - 1), ops.shape(product)[:-1])
        return self._activated(self._units_back(self.normalization(product, training=training, mask=mask)))

    def _activated(self, sums: Any) -> Any:
        # A Keras layer used as an activation follows its own dtype policy, which may be narrower.
        return ops.cast(self.activation(sums), self._gate_dtype)

    def _units_last(self, array: Any) -> Any:
        """Moves the units of an array of the inputs' shape to the last axis."""
        return array

    def _units_back(self, array: Any) -> Any:
        """Undoes `_units_last`."""
        return array
