"""Gradients: dy/dx against the paper's equation and its limits, every weight against central differences."""

import numpy as np
import pytest

from highway_keras import ConvHighway, Highway
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import PRECISE, gradients, inputs, param_slow_on_jax, scramble, weights_of

CLOSE = {"float64": {"rtol": 1e-6, "atol": 1e-7}, "float32": {"rtol": 1e-3, "atol": 2e-4}}[PRECISE]
OPTIONS = {
    "coupled": ({}, {}),
    "separate": ({"carry_gate": "separate"}, {}),
    "normalized": ({"batch_normalization": True}, {}),
    "normalized in training": ({"batch_normalization": True}, {"training": True}),
}


def random_layer(kernel_size, shape, **arguments):
    arguments |= {"kernel_initializer": "zeros", "transform_initializer": "zeros", "dtype": PRECISE}
    layer = Highway(**arguments) if kernel_size is None else ConvHighway(kernel_size, **arguments)
    layer.build(shape)
    return scramble(layer)


@pytest.mark.parametrize(("kernel_size", "shape"), [(None, (4, 3)), param_slow_on_jax(3, (2, 4, 3, 2))])
@pytest.mark.parametrize("option", OPTIONS)
def test_gradients_of_inputs_and_weights_equal_central_differences(option, kernel_size, shape):
    arguments, options = OPTIONS[option]
    layer = random_layer(kernel_size, shape, activation="tanh", **arguments)
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    training = options.get("training", False)
    expected = reference.gradients(
        x.astype("float64"), weights_of(layer), upstream.astype("float64"), activation=np.tanh, **options
    )
    found = gradients(layer, x, upstream, training=training)
    trainable = {"x", *[weight.name for weight in layer.trainable_weights]}
    assert set(found) == trainable
    for name in trainable:
        np.testing.assert_allclose(found[name], expected[name], err_msg=name, **CLOSE)


def jacobian(layer, x):
    """Computes dy_i/dx_j of each example, `[examples, i, j]`."""
    rows = [gradients(layer, x, np.tile(row, (len(x), 1)))["x"] for row in np.eye(x.shape[-1])]
    return np.stack(rows, axis=1)


def test_the_jacobian_is_that_of_the_paper():
    # dy/dx = T H' + (H - x) T' + (1 - T) I, from y = T H + (1 - T) x.
    layer = random_layer(None, (4, 3), activation="tanh")
    x, w = inputs(4, 3), weights_of(layer)
    h, t = reference.block(x, w, np.tanh), reference.transform(x, w)
    h_slope = (1 - h**2)[:, :, None] * w["kernel"].T
    t_slope = (t * (1 - t))[:, :, None] * w["transform_kernel"].T
    expected = t[:, :, None] * h_slope + (h - x)[:, :, None] * t_slope + (1 - t)[:, :, None] * np.eye(3)
    np.testing.assert_allclose(jacobian(layer, x), expected, **CLOSE)


def test_the_jacobian_of_a_closed_gate_is_the_identity():
    layer = random_layer(None, (4, 3), activation="tanh")
    layer.transform_bias.assign(np.full(3, -60.0))
    np.testing.assert_allclose(jacobian(layer, inputs(4, 3)), np.tile(np.eye(3), (4, 1, 1)), atol=1e-7)


def test_the_jacobian_of_an_open_gate_is_that_of_the_block():
    layer = random_layer(None, (4, 3), activation="tanh")
    layer.transform_bias.assign(np.full(3, 60.0))
    x, w = inputs(4, 3), weights_of(layer)
    slope = (1 - reference.block(x, w, np.tanh) ** 2)[:, :, None] * w["kernel"].T
    np.testing.assert_allclose(jacobian(layer, x), slope, **CLOSE)


def test_a_dropped_unit_passes_its_gradient_straight_through():
    layer = random_layer(None, (50, 4), activation="tanh", dropout=0.5, seed=5)
    x, upstream = inputs(50, 4), np.ones((50, 4))
    # Open gates make dropout visible in the gradient of the inputs.
    layer.transform_bias.assign(np.full(4, 60.0))
    layer.kernel.assign(np.zeros((4, 4)))
    found = gradients(layer, x, upstream, training=True)["x"]
    assert np.all(np.isclose(found, 0, atol=1e-6) | np.isclose(found, 1, atol=1e-6))
    assert 0.3 < found.mean() < 0.7
