"""Initial gate biases, valid gate activations, and warnings for dead gates."""

import doctest
import json
import re
import warnings

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.layers import auto_transform_bias, gate
from tests.unit.highway_keras.backend import array


@pytest.mark.parametrize(("depth", "bias"), [(1, -1), (10, -1), (20, -2), (30, -3), (50, -5), (100, -10), (1000, -10)])
def test_automatic_bias_follows_the_papers_guideline(depth, bias):
    assert auto_transform_bias(depth) == bias
    layer = Highway(transform_bias="auto", depth=depth)
    layer.build((None, 2))
    np.testing.assert_array_equal(array(layer.transform_bias), bias)


@pytest.mark.parametrize("depth", [0, -3, 2.5, True, "10"])
def test_an_invalid_depth_is_rejected(depth):
    with pytest.raises(ValueError, match=re.escape(f"Received: depth={depth}")):
        auto_transform_bias(depth)


def test_automatic_bias_without_a_depth_is_rejected():
    with pytest.raises(ValueError, match=r"`transform_bias='auto'`.* pass it as `depth`"):
        Highway(transform_bias="auto")


@pytest.mark.parametrize("bias", ["automatic", None, True, float("nan"), float("-inf"), [-1.0], 1j])
def test_an_invalid_bias_is_rejected(bias):
    with pytest.raises(
        ValueError, match=r"`transform_bias` must be a finite number, 'auto' or an initializer\. Received: "
    ):
        Highway(transform_bias=bias)


@pytest.mark.parametrize("bias", [-2, -2.0, np.float32(-2), np.int64(-2)])
def test_numbers_of_every_type_are_valid_biases(bias):
    assert Highway(transform_bias=bias).get_config()["transform_bias"] == -2.0


def test_an_initializer_draws_the_bias_of_every_unit():
    drawn = keras.initializers.RandomUniform(-3, -1, seed=0)
    layer = Highway(transform_bias=drawn, carry_gate="separate")
    layer.build((None, 8))
    bias = array(layer.transform_bias)
    assert -3 <= bias.min() < bias.max() <= -1
    np.testing.assert_array_equal(array(layer.carry_bias), -bias)
    again = Highway.from_config(json.loads(json.dumps(layer.get_config())))
    again.build((None, 8))
    np.testing.assert_array_equal(array(again.transform_bias), bias)
    stack = HighwayStack(3, transform_bias=drawn)
    stack.build((None, 8))
    assert len(np.unique(array(stack.transform_bias))) == 24


def test_an_initializer_with_a_known_value_is_checked():
    with pytest.warns(UserWarning, match="initial transform_bias -20 is dead in float16"):
        Highway(transform_bias=keras.initializers.Constant(-20), dtype="mixed_float16")
    Highway(transform_bias=keras.initializers.RandomNormal(-20, 0.1), dtype="mixed_float16")
    layer = Highway(transform_bias=keras.initializers.Constant([-1.0, -2.0]), kernel_initializer="zeros")
    np.testing.assert_allclose(array(layer.gates(np.zeros((1, 2)))), [[1 / (1 + np.exp(1)), 1 / (1 + np.exp(2))]], 1e-5)


def test_a_custom_function_may_be_a_gate():
    layer = Highway(gate_activation=lambda z: keras.ops.sigmoid(2 * z), transform_bias=-1.0)
    np.testing.assert_allclose(array(layer.gates(np.zeros((1, 2)))), 1 / (1 + np.exp(2)), rtol=1e-5)


def test_the_error_says_why_an_activation_cannot_be_a_gate():
    with pytest.raises(ValueError, match="mixes the elements of its input"):
        Highway(gate_activation="softmax")
    with pytest.raises(ValueError, match="leaves that range"):
        Highway(gate_activation="tanh")


def test_an_error_inside_a_gate_reaches_the_caller():
    def broken(z):
        raise RuntimeError("broken gate")

    with pytest.raises(RuntimeError, match="broken gate"):
        Highway(gate_activation=broken)


def test_a_layer_can_be_created_while_another_is_traced():
    class Outer(keras.layers.Layer):
        def call(self, x):
            Highway(gate_activation="hard_sigmoid")
            return x

    assert Outer()(keras.Input((3,))).shape == (None, 3)


DEAD = [(-20, "mixed_float16"), (-17.5, "float16"), (20, "float32"), (20, "mixed_float16"), (-120, "mixed_bfloat16")]
ALIVE = [(-20, "float32"), (-20, "mixed_bfloat16"), (-16, "mixed_float16"), (10, "mixed_bfloat16"), (-80, "bfloat16")]


@pytest.mark.parametrize(("bias", "dtype"), DEAD)
def test_a_dead_gate_raises_a_warning(bias, dtype):
    compute = dtype.removeprefix("mixed_")
    with pytest.warns(UserWarning, match=f"initial transform_bias {bias} is dead in {compute}.*Choose") as caught:
        Highway(transform_bias=bias, dtype=dtype)
    # PyTorch warns about NumPy 2 first.
    assert caught[-1].filename == __file__


@pytest.mark.parametrize(("bias", "dtype"), ALIVE)
def test_a_gate_that_can_learn_raises_no_warning(bias, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        Highway(transform_bias=bias, dtype=dtype)
        ConvHighway(3, transform_bias=bias, dtype=dtype)


def test_a_separate_carry_gate_is_checked_too():
    # The transform gate at -20 is alive in float32, the carry gate at +20 is 1 - 0.
    with pytest.warns(UserWarning, match="initial carry_bias 20 is dead in float32"):
        Highway(transform_bias=-20, carry_gate="separate")


def test_a_hard_sigmoid_gate_dies_at_a_smaller_bias():
    with pytest.warns(UserWarning, match="transform_bias -3 is dead in float32"):
        Highway(transform_bias=-3, gate_activation="hard_sigmoid")


def test_docstring_examples_are_true():
    assert doctest.testmod(gate).failed == 0
