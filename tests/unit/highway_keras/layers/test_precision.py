"""Gate and blend in float32 under every policy, products in the compute dtype, float64 never narrowed."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway
from highway_keras.layers import recording
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import BACKEND, array, gradients, inputs, param_slow_on_jax, scramble, weights_of

MIXED = [param_slow_on_jax("mixed_float16"), "mixed_bfloat16"]
mixed = pytest.mark.parametrize("policy", MIXED)
BITS = {"mixed_float16": 11, "mixed_bfloat16": 8}


@mixed
@pytest.mark.filterwarnings("ignore:The gate with the initial transform_bias")
def test_a_gate_at_minus_20_learns(policy):
    layer = Highway(transform_bias=-20, dtype=policy, activation="linear")
    x = np.ones((1, 3), "float32")
    layer.build((None, 3))
    layer.transform_kernel.assign(np.zeros((3, 3)))
    np.testing.assert_allclose(array(layer.gates(x)), reference.sigmoid(-20), rtol=1e-5)
    layer.kernel.assign(100 * np.eye(3))
    found = gradients(layer, x, np.ones((1, 3)))["transform_bias"]
    np.testing.assert_allclose(found, reference.sigmoid(-20) * (100 - 1), rtol=1e-3)


@mixed
def test_outputs_have_the_compute_dtype_and_gates_and_weights_are_float32(policy):
    layer = ConvHighway(3, dtype=policy, batch_normalization=True, carry_gate="separate", dropout=0.1)
    x = inputs(2, 4, 4, 3).astype("float32")
    with recording() as recorded:
        y = layer(x, training=True)
    assert keras.backend.standardize_dtype(y.dtype) == policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(recorded[layer.name].dtype) == "float32"
    assert keras.backend.standardize_dtype(layer.gates(x).dtype) == "float32"
    assert {weight.dtype for weight in layer.weights} == {"float32"}
    assert layer(keras.Input((4, 4, 3))).dtype == policy.removeprefix("mixed_")


@mixed
def test_biases_are_added_before_they_are_narrowed(policy):
    # Neither bias is representable in these formats; the products cancel the representable part.
    layer = Highway(dtype=policy, activation="linear", transform_bias=2.0003)
    layer.build((None, 1))
    layer.kernel.assign([[-1.0]])
    layer.bias.assign([1.0003])
    layer.transform_kernel.assign([[-2.0]])
    x = np.ones((1, 1), "float32")
    gate = array(recorded_gates(layer, x))
    np.testing.assert_allclose(gate, reference.sigmoid(0.0003), rtol=1e-6)
    expected = reference.sigmoid(0.0003) * 0.0003 + 1 - reference.sigmoid(0.0003)
    np.testing.assert_allclose(array(layer(x)), expected, rtol=2.0 ** -BITS[policy])
    np.testing.assert_allclose(gradients(layer, x, np.ones((1, 1)))["transform_bias"], 0.25 * (0.0003 - 1), rtol=1e-3)


def recorded_gates(layer, x):
    with recording() as recorded:
        layer(x)
    return recorded[layer.name]


@mixed
def test_the_blend_is_rounded_once(policy):
    layer = Highway(dtype=policy, activation="tanh", transform_bias=-1.0)
    layer.build((None, 1))
    layer.kernel.assign([[1.0]])  # makes the products exact
    layer.transform_kernel.assign([[0.5]])
    x = (np.round(inputs(500, 1).astype("float64") * 16) + 0.5) / 16
    exact = reference.forward(x, weights_of(layer), activation=np.tanh)
    spacing = 2.0 ** (np.floor(np.log2(np.abs(exact))) + 1 - BITS[policy])
    assert np.all(np.abs(array(layer(x.astype("float32"))) - exact) <= 0.51 * spacing)


@mixed
def test_products_are_in_the_compute_dtype(policy):
    layer = Highway(dtype=policy, activation="linear", transform_bias=-1.0)
    layer.build((None, 1))
    layer.transform_kernel.assign([[1.0003]])
    expected = reference.sigmoid(1 - 1)
    np.testing.assert_allclose(array(layer.gates(np.ones((1, 1)))), expected, rtol=1e-6)


@mixed
def test_a_layer_in_mixed_precision_is_near_the_reference(policy):
    layer = ConvHighway(3, dtype=policy, activation="tanh", carry_gate="separate")
    layer.build((None, 6, 6, 4))
    scramble(layer)
    x = inputs(2, 6, 6, 4).astype("float32")
    expected = reference.forward(x.astype("float64"), weights_of(layer), activation=np.tanh)
    np.testing.assert_allclose(array(layer(x)), expected, atol={"mixed_float16": 0.02, "mixed_bfloat16": 0.1}[policy])


@pytest.mark.skipif(BACKEND != "tensorflow", reason="Keras narrows float64 on JAX and PyTorch")
def test_float64_is_kept():
    layer = Highway(dtype="float64", transform_bias=-20, carry_gate="separate", dropout=0.1, batch_normalization=True)
    x = inputs(5, 4)
    layer.build(x.shape)
    scramble(layer)
    expected = reference.forward(x, weights_of(layer), kept=0.9)
    y = layer(x)
    assert keras.backend.standardize_dtype(y.dtype) == "float64"
    np.testing.assert_allclose(array(y), expected, rtol=1e-13, atol=1e-13)


def test_an_outer_layer_of_lower_precision_does_not_cast_the_weights():
    class Outer(keras.layers.Layer):
        def __init__(self):
            super().__init__(dtype="mixed_float16")
            self.inner = Highway(dtype="float32")

        def call(self, x):
            return self.inner.gates(keras.ops.ones((1, 2)))

    outer = Outer()
    outer.inner.build((None, 2))
    outer.inner.transform_kernel.assign(np.full((2, 2), 0.10003))
    np.testing.assert_allclose(array(outer(np.ones(1))), reference.sigmoid(0.20006 - 2), rtol=1e-6)
