"""The base class of highway layers: the gates and the blend. Subclasses add the block state H."""

from typing import Any

import keras
from keras import activations, constraints, initializers, ops, regularizers

from highway_keras.layers.equations import blend, close
from highway_keras.layers.gate import bias_initializer, check_gate, gate_dtype, is_initializer, known_bias
from highway_keras.layers.lesion import next_lesion, unless_spared
from highway_keras.layers.recording import record, start_call
from highway_keras.layers.seeds import with_distinct_seed, with_next_seed

Shape = tuple[int | None, ...]


class BaseHighway(keras.layers.Layer):
    """Computes y = T * H + C * x, with outputs of the shape of the inputs; see `Highway` for the arguments.

    A subclass defines `_build_block` and `_block` for H, and `_kernel_shape` and `_affine` for the map of the gates.
    """

    _nests_layers = False
    """True if H can contain other highway layers."""

    def __init__(
        self,
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
        super().__init__(**kwargs)
        if carry_gate not in ("coupled", "separate"):
            raise ValueError(f"`carry_gate` must be 'coupled' or 'separate'. Received: carry_gate={carry_gate!r}")
        if isinstance(dropout, bool) or not 0 <= dropout < 1:
            raise ValueError(f"`dropout` must be a rate in [0, 1). Received: dropout={dropout}")
        self.gate_activation = activations.get(gate_activation)
        self.transform_bias_initializer = bias_initializer(transform_bias, depth)
        self.initial_transform_bias = known_bias(self.transform_bias_initializer)
        self._bias_is_automatic, self._bias_is_initializer = (
            isinstance(transform_bias, str),
            is_initializer(transform_bias),
        )
        self.depth = depth
        self.carry_gate = carry_gate
        self.transform_initializer = initializers.get(transform_initializer)
        self.transform_regularizer = regularizers.get(transform_regularizer)
        self.transform_constraint = constraints.get(transform_constraint)
        self.dropout = dropout
        self.seed = seed
        self.supports_masking = True
        self.input_spec = keras.InputSpec(min_ndim=2)
        biases = {"transform_bias": self.initial_transform_bias}
        if carry_gate == "separate":
            biases["carry_bias"] = -self.initial_transform_bias
        check_gate(self.gate_activation, biases, self.compute_dtype)
        if dropout:
            self.seed_generator = keras.random.SeedGenerator(seed)

    def build(self, input_shape: Shape) -> None:
        """Creates the weights of the block state H, the transform gate T and, if separate, the carry gate C."""
        units = input_shape[self.unit_axis]
        if units is None:
            raise ValueError(
                f"The {'last' if self.unit_axis == -1 else 'second'} axis of the input of `{type(self).__name__}` must "
                f"be defined, because it is the size of the layer. Received: input_shape={input_shape}"
            )
        self.input_spec = keras.InputSpec(ndim=len(input_shape), axes={self.unit_axis: units})
        taken = self._build_block(input_shape)
        shape = self._kernel_shape(input_shape)
        for_transform = with_distinct_seed(self.transform_initializer, *taken)
        self._transform_kernel = self._add_kernel("transform_kernel", shape, for_transform)
        initial = self.transform_bias_initializer
        self.transform_bias = self._add_bias("transform_bias", units, initial)
        if self.carry_gate == "separate":
            for_carry = with_distinct_seed(with_next_seed(for_transform), *taken, for_transform)
            self._carry_kernel = self._add_kernel("carry_kernel", shape, for_carry)

            def opposite(shape: Shape, dtype: Any = None) -> Any:
                return -initial(shape, dtype=dtype)

            self.carry_bias = self._add_bias("carry_bias", units, opposite)
        self.built = True

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Computes y = T * H + C * x, with T, C and the sum in float32 or wider."""
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        lesion = next_lesion(self.name)
        if lesion is None:
            return self._outputs(inputs, training, mask, key=start_call(self.name))
        return unless_spared(lesion, lambda: self._outputs(inputs, training, mask, lesion.closed), self._nests_layers)

    def gates(self, inputs: Any, mask: Any = None) -> Any:
        """Computes the transform gate T of each unit for each input, as in inference.

        Args:
            inputs: inputs of the layer.
            mask: mask of the inputs, if any.

        Returns:
            T in [0, 1], of the shape of the inputs, float32 (float64 if the layer computes in float64).

        Raises:
            ValueError: if the inputs are symbolic, or have another number of units than the layer.

        Example:
            layer = highway_keras.Highway(transform_bias=-2.0)
            layer.gates(numpy.zeros((1, 3)))  # sigmoid(-2) = 0.119 for each of three units
        """
        inputs = self._inputs_of_gates(inputs)
        return self._transform(self._masked(inputs, mask), training=False)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        """Returns the input shape."""
        return input_shape

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {
            **super().get_config(),
            "gate_activation": activations.serialize(self.gate_activation),
            "transform_bias": self._transform_bias_config(),
            "depth": self.depth,
            "carry_gate": self.carry_gate,
            "transform_initializer": initializers.serialize(self.transform_initializer),
            "transform_regularizer": regularizers.serialize(self.transform_regularizer),
            "transform_constraint": constraints.serialize(self.transform_constraint),
            "dropout": self.dropout,
            "seed": self.seed,
        }

    @property
    def unit_axis(self) -> int:
        """The axis of units in inputs, gates and outputs."""
        return -1

    @property
    def transform_kernel(self) -> Any:
        """The kernel of the transform gate."""
        return self._transform_kernel

    @property
    def carry_kernel(self) -> Any:
        """The kernel of the carry gate, if it is separate."""
        return self._carry_kernel

    @property
    def _gate_dtype(self) -> str:
        return gate_dtype(self.compute_dtype)

    def _transform_bias_config(self) -> Any:
        if self._bias_is_automatic:
            return "auto"
        if self._bias_is_initializer:
            return initializers.serialize(self.transform_bias_initializer)
        return self.initial_transform_bias

    def _outputs(
        self, inputs: Any, training: bool | None, mask: Any, closed: Any = None, key: str | None = None
    ) -> Any:
        masked = self._masked(inputs, mask)
        transform = self._transform(masked, training)
        carry = self._gate(masked, self.carry_kernel, self.carry_bias) if self.carry_gate == "separate" else None
        block = self._block(masked, training, mask)
        outputs = ops.cast(blend(block, ops.cast(inputs, self._gate_dtype), transform, carry), self.compute_dtype)
        if closed is not None:
            outputs = close(outputs, inputs, self._along_units(closed, len(inputs.shape)))
        record(key, self, transform, outputs=outputs, mask=mask)
        return outputs

    def _inputs_of_gates(self, inputs: Any) -> Any:
        """Returns the inputs as a tensor, and builds the layer for them if it is not built."""
        if isinstance(inputs, keras.KerasTensor):
            raise ValueError(
                "`gates` does not accept symbolic inputs: a model of its result would lack this layer and its weights. "
                "Use `highway_keras.analysis.GateModel(model)`, or call `gates` in the `call` of a layer or model. "
                f"Received: inputs={inputs}"
            )
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        if not self.built:
            self.build(tuple(inputs.shape))
        units = self.transform_bias.shape[-1]
        if inputs.shape[self.unit_axis] not in (units, None):
            raise ValueError(f"'{self.name}' has {units} units. Received: inputs of shape {tuple(inputs.shape)}")
        return inputs

    def _build_block(self, input_shape: Shape) -> tuple[Any, ...]:
        """Creates the weights of H, and returns the initializers of its kernels."""
        raise NotImplementedError

    def _block(self, inputs: Any, training: bool | None, mask: Any) -> Any:
        """Computes H in the gate's dtype."""
        raise NotImplementedError

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        raise NotImplementedError

    def _affine(self, inputs: Any, kernel: Any) -> Any:
        raise NotImplementedError

    def _masked(self, inputs: Any, mask: Any) -> Any:
        """Returns the inputs as the affine maps of H and the gates receive them."""
        del mask
        return inputs

    def _narrow_product(self, inputs: Any, kernel: Any) -> Any:
        """Applies the affine map in the layer's compute dtype."""
        return self._affine(inputs, ops.cast(kernel, self.compute_dtype))

    def _product(self, inputs: Any, kernel: Any) -> Any:
        """Applies the affine map and casts its result to the gate's dtype."""
        return ops.cast(self._narrow_product(inputs, kernel), self._gate_dtype)

    def _gate(self, inputs: Any, kernel: Any, bias: Any) -> Any:
        return self.gate_activation(self._biased(self._product(inputs, kernel), bias))

    def _biased(self, product: Any, bias: Any) -> Any:
        if bias is None:
            return product
        return product + self._along_units(ops.cast(bias, self._gate_dtype), len(product.shape))

    def _along_units(self, array: Any, rank: int) -> Any:
        """Reshapes an array `[units]` to broadcast against inputs of a given rank."""
        del rank
        return array

    def _transform(self, inputs: Any, training: bool | None) -> Any:
        transform = self._gate(inputs, self.transform_kernel, self.transform_bias)
        if not self.dropout:
            return transform
        # A dropped unit carries. Scaling up the others would push T above 1 and 1 - T below 0; inference scales down
        # to the mean instead.
        if not training:
            return transform * (1 - self.dropout)
        noise = keras.random.uniform(ops.shape(transform), dtype=self._gate_dtype, seed=self.seed_generator)
        return ops.where(noise >= self.dropout, transform, ops.zeros_like(transform))

    def _add_kernel(self, name: str, shape: Shape, initializer: Any) -> Any:
        return self._add(name, shape, initializer, self.transform_regularizer, self.transform_constraint)

    def _add_bias(
        self, name: str, units: int, initializer: Any, regularizer: Any = None, constraint: Any = None
    ) -> Any:
        return self._add(name, (units,), initializer, regularizer, constraint)

    def _add(self, name: str, shape: Shape, initializer: Any, regularizer: Any = None, constraint: Any = None) -> Any:
        """Adds a weight of one layer."""
        # No autocast: a bias cast to the compute dtype before the addition would lose its low bits.
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=initializer,
            regularizer=regularizer,
            constraint=constraint,
            autocast=False,
        )


def expand_mask(mask: Any, rank: int) -> Any:
    """Appends axes of length 1 to a mask (true where an input counts) up to the given rank."""
    mask = ops.cast(mask, "bool")
    for _ in range(rank - len(mask.shape)):
        mask = ops.expand_dims(mask, -1)
    return mask
