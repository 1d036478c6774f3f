"""Stacks with activations that are not elementwise equal single layers in every mode."""

import keras
import numpy as np
import pytest
from keras import ops

from highway_keras import Highway, HighwayStack
from highway_keras.layers import Lesion, lesioned, recording
from highway_keras.layers.gate import is_elementwise
from highway_keras.surgery import stacked, unstacked
from highway_keras.surgery.stacking import layers_of, stack_of
from tests.unit.highway_keras.backend import PRECISE, array, compiled, inputs, param_slow_on_jax
from tests.unit.highway_keras.stacks import assert_close, gradients, random_stack, unrolled

package = keras.saving.register_keras_serializable(package="tests")


@package
def rms(z):
    return z / ops.sqrt(ops.mean(ops.square(z), axis=-1, keepdims=True) + 1e-6)


@package
def across_steps(z):
    return z - ops.mean(z, axis=1, keepdims=True)


@package
def by_place(z):
    return z * ops.convert_to_tensor([1.0, 2.0, 3.0, 4.0], dtype=z.dtype)


@package
def swapped_pairs(z):
    return ops.reshape(ops.flip(ops.reshape(z, (*z.shape[:-1], -1, 2)), axis=-1), ops.shape(z))


MIXING = {
    "softmax": ("softmax", (5, 4)),
    "rms": (rms, (5, 4)),
    "steps": (across_steps, (2, 3, 4)),
    "places": (by_place, (5, 4)),
    "layer": (keras.layers.Softmax(axis=1, dtype=PRECISE), (2, 3, 4)),
}


@pytest.mark.parametrize("case", ["softmax", "rms", *map(param_slow_on_jax, ("steps", "places", "layer"))])
def test_outputs_and_gradients_equal_those_of_single_layers(case):
    activation, shape = MIXING[case]
    stack = random_stack(3, shape, activation=activation)
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    twin = unrolled(stack)
    assert_close(array(stack(x)), array(twin(x)), PRECISE)
    assert_close(gradients(stack, x, upstream), gradients(twin, x, upstream), PRECISE)


@pytest.mark.parametrize("case", ["rms", "steps"])
def test_outputs_do_not_depend_on_other_examples_of_the_batch(case):
    activation, shape = MIXING[case]
    stack = random_stack(3, shape, activation=activation)
    x = inputs(*shape)
    run = compiled(lambda x: stack(x, training=False))
    np.testing.assert_allclose(array(run(x))[:1], array(stack(x[:1])), rtol=1e-5, atol=1e-6)


def test_gates_outputs_and_lesions_equal_those_of_single_layers():
    stack = random_stack(3, (5, 4), activation=rms, name="deep")
    x, layers = inputs(5, 4), layers_of(stack)
    with recording(outputs=True) as recorded:
        stack(x)
    y, gates, outputs = x, [], []
    for layer in layers:
        gates.append(array(layer.gates(y)))
        y = layer(y)
        outputs.append(array(y))
    assert_close(array(stack.gates(x)), np.stack(gates, axis=1), PRECISE)
    assert_close(array(recorded["deep"]), np.stack(gates, axis=1), PRECISE)
    assert_close(array(recorded.outputs["deep"]), np.stack(outputs, axis=1), PRECISE)
    closed = np.zeros((3, 4), bool)
    closed[1] = True
    with lesioned({"deep": Lesion(closed)}):
        assert_close(array(stack(x)), array(layers[2](layers[0](x))), PRECISE)


def test_conversion_cloning_and_saving_keep_the_function(tmp_path):
    stack = random_stack(3, (None, 4), activation=rms, dtype="float32")
    model = keras.Sequential([keras.Input((4,)), stack])
    x = inputs(5, 4).astype("float32")
    model.save(tmp_path / "model.keras")
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    single = unstacked(model)
    assert [type(layer) for layer in stacked(single).layers] == [HighwayStack]
    for other in (keras.models.load_model(tmp_path / "model.keras"), copy, single, stacked(single)):
        assert_close(array(other(x)), array(unrolled(stack)(x)), "float32")


@pytest.mark.parametrize("activation", [keras.layers.PReLU, lambda: keras.layers.Dropout(0.5)])
def test_an_activation_with_variables_is_rejected(activation):
    with pytest.raises(ValueError, match=r"share one `activation`.* Received: activation=<"):
        HighwayStack(3, activation=activation()).build((None, 4))


def test_single_layers_with_an_activation_with_variables_are_not_stacked():
    layers = [Highway(activation=keras.layers.PReLU(alpha_initializer="ones"), name=name) for name in "ab"]
    model = keras.Sequential([keras.Input((4,)), *layers])
    assert [tuple(layer.weights[-1].shape) for layer in model.layers] == [(4,), (4,)]
    assert [type(layer) for layer in stacked(model).layers] == [Highway, Highway]
    x = inputs(5, 4).astype("float32")
    np.testing.assert_array_equal(array(stacked(model)(x)), array(model(x)))
    with pytest.raises(ValueError, match="or activation with variables"):
        stack_of(layers)


@pytest.mark.parametrize("name", ["relu", "gelu", "selu", "silu", "softplus", "hard_tanh", "mish", "linear"])
def test_elementwise_functions_are_recognized(name):
    assert is_elementwise(keras.activations.get(name), "float32")
    if name in {"relu", "linear"}:
        # Refused without a known derivative.
        assert HighwayStack(2, activation=name, rematerialize=True).rematerialize


@pytest.mark.parametrize(
    "function", [rms, across_steps, swapped_pairs, keras.activations.softmax, keras.activations.glu]
)
def test_mixing_functions_are_recognized(function):
    assert not is_elementwise(function, "float32")
