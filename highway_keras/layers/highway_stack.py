"""Many dense highway layers in one."""

from dataclasses import replace
from typing import Any

import keras
from keras import ops

from highway_keras.layers import stack_loop, stacked_weights
from highway_keras.layers.base import BaseHighway, Shape
from highway_keras.layers.derivatives import DERIVATIVES
from highway_keras.layers.gate import is_elementwise
from highway_keras.layers.lesion import Lesion, next_lesion
from highway_keras.layers.recording import is_recording, is_recording_outputs, record
from highway_keras.layers.stack_loop import Maths, Weights

UNSTACKED = {"carry_gate": "coupled", "batch_normalization": False, "dropout": 0.0}


@keras.saving.register_keras_serializable(package="highway_keras")
class HighwayStack(BaseHighway):
    """`depth` dense highway layers as one layer whose cost to trace, compile, save and load does not grow with depth.

    It computes what as many `Highway` layers in a row compute. Their weights are stacked: each has an axis of length
    `depth` in front. H and T come from one product, and a loop goes through the layers; its gradient is written by
    hand where the slopes of both activations are known (linear, relu, leaky_relu, elu, tanh, sigmoid, hard_sigmoid).
    Under a mixed policy the products are narrow, and what is passed on from layer to layer stays float32: the small
    steps of a deep net would be lost in a narrower sum.

    Initialisers, regularisers and constraints act on each layer as they would act on a `Highway`. So does `activation`:
    one that is not elementwise, such as softmax, sees the shape of the inputs, and is slower.

    An optimizer sees one variable for the kernels of all layers. Those whose step depends on each number alone (SGD,
    Adam, AdamW, Lion), and `global_clipnorm`, train a stack as they train single layers. Those that take a norm over a
    variable (`clipnorm`, `Lamb`, `Adafactor`) take it over all layers, and `Muon`, which is for variables of rank 2,
    orthogonalises the updates of the biases `[depth, units]` and not those of the kernels. For these, train
    `highway_keras.surgery.unstacked(model)` and stack the result (docs/depth.md).

    Args:
        depth: number of layers.
        rematerialize: in training keep the input of every √depth-th layer only, and compute what lies between a second
            time: memory grows with the square root of depth, for about a third more work.
        **kwargs: the arguments of `Highway`, but for a separate carry gate, batch normalisation and dropout.
            `transform_bias="auto"` takes the bias from this layer's `depth`.

    Input shape:
        Rank 2 or more, `(batch, ..., units)`; `units` defined.

    Output shape:
        That of the input.

    Raises:
        ValueError: for an argument out of its range, or one that a stack does not have; when it is built, for an
            activation with variables, such as `keras.layers.PReLU`, of which each layer would need its own.

    Example:
        inputs = keras.Input((784,))
        x = keras.layers.Dense(50)(inputs)
        x = highway_keras.HighwayStack(1000, activation="tanh", transform_bias=-10.0)(x)
        model = keras.Model(inputs, keras.layers.Dense(10)(x))

    Reference:
        Srivastava, Greff, Schmidhuber 2015, "Training Very Deep Networks", arXiv 1507.06228, section 2.
    """

    depth: int

    def __init__(self, depth: int, *, rematerialize: bool = False, **kwargs: Any) -> None:
        if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
            raise ValueError(f"`depth` must be a positive integer, the number of layers. Received: depth={depth}")
        for argument, value in UNSTACKED.items():
            if kwargs.get(argument, value) != value:
                raise ValueError(
                    f"A stack has no `{argument}`. Build the net from single `Highway` layers for that. "
                    f"Received: {argument}={kwargs[argument]!r}"
                )
        super().__init__(depth=depth, **kwargs)
        self._elementwise = self.activation in DERIVATIVES or _is_elementwise(self.activation, self._gate_dtype)
        self.rematerialize = rematerialize
        if rematerialize and not self._maths.differentiated:
            raise ValueError(
                "`rematerialize` needs activations whose slope is known from their output: linear, relu, leaky_relu, "
                f"elu, tanh, sigmoid, hard_sigmoid. Received: activation={self.activation}, "
                f"gate_activation={self.gate_activation}"
            )

    def build(self, input_shape: Shape) -> None:
        """Makes the weights of all layers."""
        super().build(input_shape)
        if has_variables(self.activation):
            raise ValueError(
                "A stack has one `activation` for all of its layers. This one has variables, of which each layer would "
                "need its own: build the net from single `Highway` layers, each with an activation of its own. "
                f"Received: activation={self.activation}"
            )

    def call(self, inputs: Any, training: bool | None = None, mask: Any = None) -> Any:
        """Runs through all layers."""
        x, weights, maths = self._feature_major(inputs), self._stacked_weights(), self._maths_for(inputs)
        if (lesion := next_lesion(self.name)) is not None:
            y = self._lesioned(x, weights, maths, lesion)
        elif is_recording_outputs():
            transform, outputs = stack_loop.gates_and_outputs(x, weights, maths)
            last = self._layers_last(transform, inputs), self._layers_last(outputs, inputs)
            record(self, *last, depth=self.depth, mask=mask)
            y = outputs[-1]
        elif is_recording():
            y, transform = stack_loop.gates(x, weights, maths)
            record(self, self._layers_last(transform, inputs), depth=self.depth, mask=mask)
        elif training and maths.differentiated:
            y = stack_loop.train(x, weights, maths, rematerialize=self.rematerialize)
        else:
            y = stack_loop.infer(x, weights, maths)
        return ops.cast(ops.reshape(ops.transpose(y), ops.shape(inputs)), self.compute_dtype)

    def gates(self, inputs: Any, mask: Any = None) -> Any:
        """The transform gates of all layers, as used in inference.

        Args:
            inputs: what the layer would be called with.
            mask: not read.

        Returns:
            T, `(batch, ..., depth, units)`, float32 (float64 if the layer computes in float64), values in [0, 1].

        Example:
            stack = highway_keras.HighwayStack(30, transform_bias=-2.0)
            stack.gates(numpy.zeros((8, 50)))[:, 0]  # of the first layer, (8, 50)
        """
        del mask
        inputs = ops.convert_to_tensor(inputs, dtype=self.compute_dtype)
        if not self.built:
            self.build(tuple(inputs.shape))
        x, weights, maths = self._feature_major(inputs), self._stacked_weights(), self._maths_for(inputs)
        _, transform = stack_loop.gates(x, weights, maths)
        return self._layers_last(transform, inputs)

    def get_config(self) -> dict[str, Any]:
        """The arguments, in a form that can be written as JSON."""
        config = {**super().get_config(), "rematerialize": self.rematerialize}
        return {name: value for name, value in config.items() if name not in UNSTACKED}

    @property
    def _maths(self) -> Maths:
        return Maths(self.activation, self.gate_activation, self.compute_dtype)

    def _maths_for(self, inputs: Any) -> Maths:
        """The maths with an activation of `[units, examples]`; one that mixes elements sees the shape of the inputs."""
        if self._elementwise:
            return self._maths
        shape = ops.shape(inputs)

        def as_single_layers(sums: Any) -> Any:
            block = self._activated(ops.reshape(ops.transpose(sums), shape))
            return ops.transpose(ops.reshape(block, (-1, shape[-1])))

        return replace(self._maths, activation=as_single_layers)

    def _stacked_weights(self) -> Weights:
        kernel = ops.concatenate([self.kernel, self.transform_kernel], axis=2)
        return Weights(*(ops.cast(array, self._gate_dtype) for array in (kernel, self.bias, self.transform_bias)))

    def _lesioned(self, x: Any, weights: Weights, maths: Maths, lesion: Lesion) -> Any:
        """The output of the last layer, `[units, examples]`, from the last intact layer whose output is known."""
        if lesion.outputs is None:
            return stack_loop.lesioned(x, weights, maths, lesion.closed, 0)
        intact = lesion.outputs

        def known() -> Any:
            return self._feature_major(ops.take(intact, lesion.spared - 1, axis=len(intact.shape) - 2))

        x = ops.cond(ops.greater(lesion.spared, 0), known, lambda: x)
        return stack_loop.lesioned(x, weights, maths, lesion.closed, lesion.spared)

    def _feature_major(self, inputs: Any) -> Any:
        """The inputs as `[units, examples]`."""
        return ops.transpose(ops.reshape(ops.cast(inputs, self._gate_dtype), (-1, inputs.shape[-1])))

    def _layers_last(self, array: Any, inputs: Any) -> Any:
        """T or y of all layers from `[depth, units, examples]` to `[batch, ..., depth, units]`."""
        *examples, units = ops.shape(inputs)
        return ops.reshape(ops.transpose(array, (2, 0, 1)), (*examples, self.depth, units))

    def _kernel_shape(self, input_shape: Shape) -> Shape:
        return (self.depth, input_shape[-1], input_shape[-1])

    def _add_kernel(self, name: str, shape: Shape, initializer: Any) -> Any:
        of_block = name == "kernel"
        return self.add_weight(
            name=name,
            shape=shape,
            initializer=stacked_weights.initialize(initializer, self.depth),
            regularizer=stacked_weights.penalty(self.kernel_regularizer if of_block else self.transform_regularizer),
            constraint=stacked_weights.constraint(self.kernel_constraint if of_block else self.transform_constraint),
            autocast=False,
        )

    def _add_bias(self, name: str, units: int, initializer: Any) -> Any:
        return self.add_weight(
            name=name,
            shape=(self.depth, units),
            initializer=stacked_weights.initialize(initializer, self.depth),
            autocast=False,
        )


def has_variables(activation: Any) -> bool:
    """Whether an activation is a built layer with weights or other state."""
    return isinstance(activation, keras.layers.Layer) and bool(activation.variables)


def _is_elementwise(activation: Any, dtype: str) -> bool:
    # To try a layer would build it. What does not take any shape has a reason to, and gets the shape of the inputs.
    if isinstance(activation, keras.layers.Layer):
        return False
    try:
        return is_elementwise(activation, dtype)
    except Exception:
        return False
