"""A stack of dense highway layers as one Keras layer, with weights stacked along depth."""

from dataclasses import replace
from typing import Any

import keras
from keras import ops

from highway_keras.layers import stack_loop
from highway_keras.layers.affine import AffineHighway
from highway_keras.layers.arguments import positive_integer
from highway_keras.layers.base import Shape
from highway_keras.layers.equations import DERIVATIVES
from highway_keras.layers.gate import is_elementwise
from highway_keras.layers.layer_math import LayerMath, Weights, layer_math
from highway_keras.layers.lesion import Lesion, next_lesion
from highway_keras.layers.recording import is_recording, is_recording_outputs, record, start_call
from highway_keras.layers.stacked_weights import StackedConstraint, StackedRegularizer, stacked_initializer

UNSTACKED = {"carry_gate": "coupled", "batch_normalization": False, "dropout": 0.0, "activity_regularizer": None}
"""Arguments of `Highway` that a stack lacks, with the values it implies."""
UNUSED = ("normalization_epsilon", "normalization_momentum", "seed")
"""Arguments of `Highway` that have no effect at these values."""


@keras.saving.register_keras_serializable(package="highway_keras")
class HighwayStack(AffineHighway):
    """`depth` dense highway layers as one layer whose cost to trace, compile, save and load does not grow with depth.

    Computes the same as `depth` consecutive `Highway` layers. The weights are stacked along a leading axis of length
    `depth`. One product per layer yields H and T, and a loop runs through the layers. The loop's gradient is
    hand-written for activations whose derivative is known from their output (linear, relu, leaky_relu, elu, tanh,
    sigmoid, hard_sigmoid). Under a mixed policy only the products are narrow; the activations passed from layer to
    layer stay float32, because a narrower sum would lose the small changes per layer of a deep net.

    Initializers, regularizers, constraints and `activation` act on each layer as on a `Highway`. An activation that is
    not elementwise, such as softmax, receives the shape of the inputs and is slower.

    An optimizer sees one variable for the kernels of all layers. Elementwise optimizers (SGD, Adam, AdamW, Lion) and
    `global_clipnorm` train a stack like single layers. Those that take a norm per variable (`clipnorm`, `Lamb`,
    `Adafactor`) take it over all layers, and `Muon`, meant for variables of rank 2, orthogonalizes the updates of the
    biases `[depth, units]` instead of the kernels. With these, train `highway_keras.surgery.unstacked(model)` and stack
    the result (docs/depth.md).

    Args:
        depth: number of layers.
        rematerialize: whether training saves the input of every √depth-th layer only and recomputes the layers between:
            memory grows with the square root of depth, at about a third more computation. A stack does not run inside
            `keras.RematScope("full")`.

    The other arguments are those of `Highway`; there is no separate carry gate, batch normalization, dropout or
    activity regularizer. `transform_bias="auto"` derives the bias from this layer's `depth`.

    Input shape:
        Rank 2 or more, `(batch, ..., units)`; `units` must be defined. Building the layer fixes the rank.

    Output shape:
        Same as the input.

    Raises:
        ValueError: if an argument is out of range or not supported by a stack; at build time, if the activation has
            variables, such as `keras.layers.PReLU`, because each layer would need its own.

    Example:
        inputs = keras.Input((784,))
        x = keras.layers.Dense(50)(inputs)
        x = highway_keras.HighwayStack(1000, activation="tanh", transform_bias=-10.0)(x)
        model = keras.Model(inputs, keras.layers.Dense(10)(x))

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.
    """

    depth: int
    stacked_axes = 1

    def __init__(
        self,
        depth: int,
        *,
        rematerialize: bool = False,
        activation: Any = "relu",
        gate_activation: Any = "sigmoid",
        transform_bias: Any = -2.0,
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
        lora_rank: int | None = None,
        lora_alpha: float | None = None,
        **kwargs: Any,
    ) -> None:
        for argument, value in UNSTACKED.items():
            if (received := kwargs.pop(argument, value)) != value:
                raise ValueError(
                    f"A stack has no `{argument}`. Use single `Highway` layers for that. "
                    f"Received: {argument}={received!r}"
                )
        super().__init__(
            depth=positive_integer("depth", depth, "the number of layers"),
            activation=activation,
            gate_activation=gate_activation,
            transform_bias=transform_bias,
            use_bias=use_bias,
            kernel_initializer=kernel_initializer,
            transform_initializer=transform_initializer,
            bias_initializer=bias_initializer,
            kernel_regularizer=kernel_regularizer,
            transform_regularizer=transform_regularizer,
            bias_regularizer=bias_regularizer,
            kernel_constraint=kernel_constraint,
            transform_constraint=transform_constraint,
            bias_constraint=bias_constraint,
            lora_rank=lora_rank,
            lora_alpha=lora_alpha,
            **kwargs,
        )
        self._elementwise = self.activation in DERIVATIVES or _is_elementwise(self.activation, self._gate_dtype)
        self.rematerialize = rematerialize
        if rematerialize and not LayerMath(self.activation, self.gate_activation, self.compute_dtype).has_gradient:
            raise ValueError(
                "`rematerialize` needs activations whose derivative is known from their output: linear, relu, "
                f"leaky_relu, elu, tanh, sigmoid, hard_sigmoid. Received: activation={self.activation}, "
                f"gate_activation={self.gate_activation}"
            )

    def build(self, input_shape: Shape) -> None:
        """Creates the weights of all layers."""
        super().build(input_shape)
        if has_variables(self.activation):
            raise ValueError(
                "All layers of a stack share one `activation`, so it must not have variables. Use single `Highway` "
                "layers, each with its own activation. "
                f"Received: activation={self.activation}"
            )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Computes the output of the last layer."""
        math = self._math_for(inputs)
        x, weights = self._entered(inputs, math), self._stacked_weights(math)
        if (lesion := next_lesion(self.name, self.depth)) is not None:
            y = self._lesioned(x, weights, math, lesion)
        elif is_recording_outputs():
            transform, states = stack_loop.gates_and_outputs(x, weights, math)
            gates = self._layers_last(transform, inputs, math)
            outputs = self._layers_last(states, inputs, math)
            record(start_call(self.name, self.depth), self, gates, outputs=outputs, depth=self.depth, mask=mask)
            y = states[-1]
        elif is_recording():
            y, transform = stack_loop.gates(x, weights, math)
            gates = self._layers_last(transform, inputs, math)
            record(start_call(self.name, self.depth), self, gates, depth=self.depth, mask=mask)
        elif training and math.has_gradient:
            y = stack_loop.train(x, weights, math, rematerialize=self.rematerialize)
        else:
            y = stack_loop.infer(x, weights, math)
        y = math.leave(y)
        return ops.cast(y if len(inputs.shape) == 2 else ops.reshape(y, ops.shape(inputs)), self.compute_dtype)

    def gates(self, inputs: Any, mask: Any = None) -> Any:
        """Computes the transform gates of all layers, as in inference.

        Args:
            inputs: inputs of the layer.
            mask: ignored.

        Returns:
            T in [0, 1], `(batch, ..., depth, units)`, float32 (float64 if the layer computes in float64).

        Raises:
            ValueError: if the inputs are symbolic, or have another number of units than the layer.

        Example:
            stack = highway_keras.HighwayStack(30, transform_bias=-2.0)
            stack.gates(numpy.zeros((8, 50)))[:, 0]  # first layer, (8, 50)
        """
        del mask
        inputs = self._inputs_of_gates(inputs)
        math = self._math_for(inputs)
        x, weights = self._entered(inputs, math), self._stacked_weights(math)
        _, transform = stack_loop.gates(x, weights, math)
        return self._layers_last(transform, inputs, math)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        config = {**super().get_config(), "rematerialize": self.rematerialize}
        return {name: value for name, value in config.items() if name not in (*UNSTACKED, *UNUSED)}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "HighwayStack":
        """Creates a stack from its config, or from that of a `Highway` layer with a `depth`."""
        return super().from_config({name: value for name, value in config.items() if name not in UNUSED})

    def _math_for(self, inputs: Any) -> LayerMath:
        """Returns the maths of one layer; an activation that mixes elements is wrapped to receive the inputs' shape."""
        math = layer_math(self.activation, self.gate_activation, self.compute_dtype, inputs.shape[-1])
        if self._elementwise:
            return math
        shape = ops.shape(inputs)

        def as_single_layers(sums: Any) -> Any:
            block = self._activated(ops.reshape(math.leave(sums), shape))
            return math.enter(ops.reshape(block, (-1, shape[-1])))

        return replace(math, activation=as_single_layers)

    def _stacked_weights(self, math: LayerMath) -> Weights:
        kernels = math.joined(self.kernel, self.transform_kernel)
        transform_bias = ops.cast(self.transform_bias, self._gate_dtype)
        bias = ops.zeros_like(transform_bias) if self.bias is None else ops.cast(self.bias, self._gate_dtype)
        return Weights(tuple(ops.cast(kernel, self._gate_dtype) for kernel in kernels), bias, transform_bias)

    def _lesioned(self, x: Any, weights: Weights, math: LayerMath, lesion: Lesion) -> Any:
        """Returns the lesioned output, computed from the last intact layer with a known output."""
        if lesion.outputs is None:
            return stack_loop.lesioned(x, weights, math, lesion.closed, 0)
        intact = lesion.outputs

        def last_intact() -> Any:
            return self._entered(ops.take(intact, lesion.spared - 1, axis=len(intact.shape) - 2), math)

        x = ops.cond(ops.greater(lesion.spared, 0), last_intact, lambda: x)
        return stack_loop.lesioned(x, weights, math, lesion.closed, lesion.spared)

    def _entered(self, inputs: Any, math: LayerMath) -> Any:
        """Arranges inputs of any rank for the loop."""
        x = ops.cast(inputs, self._gate_dtype)
        return math.enter(x if len(inputs.shape) == 2 else ops.reshape(x, (-1, inputs.shape[-1])))

    def _layers_last(self, array: Any, inputs: Any, math: LayerMath) -> Any:
        """Reshapes T or y of all layers from the loop to `[batch, ..., depth, units]`."""
        *examples, units = ops.shape(inputs)
        return ops.reshape(math.layers_last(array), (*examples, self.depth, units))

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        return (self.depth, input_shape[-1], input_shape[-1])

    def _add_bias(
        self, name: str, units: int, initializer: Any, regularizer: Any = None, constraint: Any = None
    ) -> Any:
        return self._add(name, (self.depth, units), initializer, regularizer, constraint)

    def _add(self, name: str, shape: Shape, initializer: Any, regularizer: Any = None, constraint: Any = None) -> Any:
        return super()._add(
            name,
            shape,
            stacked_initializer(initializer, self.depth),
            regularizer and StackedRegularizer(regularizer),
            constraint and StackedConstraint(constraint),
        )


def has_variables(activation: Any) -> bool:
    """Tests whether an activation is a built layer with weights or other state."""
    return isinstance(activation, keras.layers.Layer) and bool(activation.variables)


def _is_elementwise(activation: Any, dtype: str) -> bool:
    # A trial call would build a layer. A function that rejects the probes may need the shape of the inputs.
    if isinstance(activation, keras.layers.Layer):
        return False
    try:
        return is_elementwise(activation, dtype)
    except Exception:
        return False
