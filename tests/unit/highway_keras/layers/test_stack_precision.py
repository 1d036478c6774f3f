"""Under a mixed policy, a stack's products are in low precision, and the activations between layers are not."""

import keras
import numpy as np
import pytest

from highway_keras import HighwayStack
from highway_keras.layers import recording
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import array, gradient_tensors, inputs, param_slow_on_jax, weights_of
from tests.unit.highway_keras.stacks import random_stack, unrolled

mixed = pytest.mark.parametrize("policy", [param_slow_on_jax("mixed_float16"), "mixed_bfloat16"])
either = pytest.mark.parametrize("training", [True, param_slow_on_jax(False)])
BITS = {"mixed_float16": 11, "mixed_bfloat16": 8}


def nearly_closed_stack(depth, policy, **arguments):
    """Returns a stack with H = 10 and nearly closed gates: each layer adds a little to an input of 1."""
    bias = keras.initializers.Constant(10.0)
    zeros = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}
    arguments = {"activation": "linear", "transform_bias": -10.0, **zeros, **arguments}
    stack = HighwayStack(depth, bias_initializer=bias, dtype=policy, **arguments)
    stack.build((None, 2))
    return stack


@mixed
@either
def test_small_steps_of_many_layers_add_up(policy, training):
    # A step of 4e-4 is less than half the spacing of either format at 1, so single steps would be lost.
    y = array(nearly_closed_stack(200, policy)(np.ones((3, 2), "float32"), training=training))
    expected = 10 - 9 * (1 - reference.sigmoid(-10)) ** 200  # 1.08
    np.testing.assert_allclose(y, expected, rtol=2.0 ** -BITS[policy])


@pytest.mark.parametrize(("policy", "rematerialize"), [("mixed_float16", False), ("mixed_bfloat16", True)])
def test_small_steps_of_many_layers_reach_the_gradients(policy, rematerialize):
    stack, x = nearly_closed_stack(200, policy, rematerialize=rematerialize), np.ones((3, 2), "float32")
    found = [array(tensor) for tensor in gradient_tensors(stack, x, np.ones((3, 2), "float32"), training=True)]
    _, _, bias, _, transform_bias = found
    gate = reference.sigmoid(-10)
    passed = (1 - gate) ** np.arange(199, -1, -1)  # gradient at each layer's output
    block_minus_input = 9 * (1 - gate) ** np.arange(200)
    np.testing.assert_allclose(bias, 3 * np.tile(passed * gate, (2, 1)).T, rtol=1e-4)
    expected = 3 * passed * gate * (1 - gate) * block_minus_input
    np.testing.assert_allclose(transform_bias, np.tile(expected, (2, 1)).T, rtol=1e-4)
    np.testing.assert_allclose(found[0], (1 - gate) ** 200, rtol=2.0 ** -BITS[policy])
    assert (1 - gate) ** 200 < 1 - 2.0 ** -BITS[policy]


@mixed
@either
def test_outputs_have_the_compute_dtype_and_gates_weights_and_gradients_are_float32(policy, training):
    stack, x = HighwayStack(3, activation="tanh", dtype=policy), inputs(2, 4, 3).astype("float32")
    with recording() as recorded:
        stack(x, training=training)
    y = stack(x, training=training)
    assert keras.backend.standardize_dtype(y.dtype) == policy.removeprefix("mixed_")
    assert keras.backend.standardize_dtype(recorded[stack.name].dtype) == "float32"
    assert keras.backend.standardize_dtype(stack.gates(x).dtype) == "float32"
    assert {weight.dtype for weight in stack.weights} == {"float32"}
    assert stack(keras.Input((4, 3))).dtype == policy.removeprefix("mixed_")
    for tensor in gradient_tensors(stack, x, x, training=training):
        assert keras.backend.standardize_dtype(tensor.dtype) == "float32"
        assert np.isfinite(array(tensor)).all()


@mixed
@either
def test_biases_are_added_before_they_are_narrowed(policy, training):
    # Neither bias is representable in these formats; the products cancel the representable part.
    stack = random_stack(1, (1, 1), dtype=policy, activation="linear")
    for weight, value in zip(stack.weights, (-1.0, 1.0003, -2.0, 2.0003), strict=True):
        weight.assign(np.full(weight.shape, value))
    x = np.ones((1, 1), "float32")
    gate = reference.sigmoid(0.0003)
    np.testing.assert_allclose(array(stack.gates(x)), np.full((1, 1, 1), gate), rtol=1e-6)
    y = array(stack(x, training=training))
    np.testing.assert_allclose(y, np.full((1, 1), gate * 0.0003 + 1 - gate), rtol=2.0 ** -BITS[policy])


@mixed
@either
def test_products_are_in_the_compute_dtype(policy, training):
    # 1.0003 is 1 in both formats.
    stack = random_stack(1, (1, 1), dtype=policy, activation="linear")
    for weight, value in zip(stack.weights, (1.0003, 0.0, 0.0, 0.0), strict=True):
        weight.assign(np.full(weight.shape, value))
    x = np.ones((1, 1), "float32")
    (gradient,) = (array(tensor) for tensor in gradient_tensors(stack, x, x, training=training)[-1:])
    np.testing.assert_allclose(gradient, [[0.0]], atol=1e-6)  # 0.25 * (H - x)
    np.testing.assert_array_equal(array(stack(x, training=training)), [[1.0]])


@mixed
def test_a_stack_in_mixed_precision_is_as_exact_as_its_layers(policy):
    stack = random_stack(20, (64, 8), dtype=policy, activation="tanh")
    x = inputs(64, 8).astype("float32")
    exact = x.astype("float64")
    weights = weights_of(stack)
    for number in range(20):
        exact = reference.forward(exact, {name: value[number] for name, value in weights.items()}, activation=np.tanh)
    of_stack, of_layers = (np.abs(array(y) - exact).mean() for y in (stack(x), unrolled(stack)(x)))
    assert of_stack <= 1.02 * of_layers
    assert of_stack < 0.05


@pytest.mark.filterwarnings("ignore:The gate with the initial transform_bias")
@mixed
def test_a_gate_at_minus_20_learns(policy):
    stack = nearly_closed_stack(2, policy, transform_bias=-20.0)
    x = np.ones((1, 2), "float32")
    np.testing.assert_allclose(array(stack.gates(x)), np.full((1, 2, 2), reference.sigmoid(-20)), rtol=1e-5)
    gradient = array(gradient_tensors(stack, x, x, training=True)[-1])
    np.testing.assert_allclose(gradient, np.full((2, 2), reference.sigmoid(-20) * 9), rtol=1e-3)
