"""Each slope is the derivative that the backend finds."""

import keras
import numpy as np
import pytest

from highway_keras import HighwayStack
from highway_keras.layers.equations import DERIVATIVES
from tests.unit.highway_keras.helpers import BACKEND, PRECISE, array

# Between the corners at 0 and -3 and 3, and where functions are flat.
POINTS = np.concatenate([np.linspace(-7.95, 7.95, 160), [-40.0, 40.0]]).astype(PRECISE)
ATOL = {"float64": 1e-14, "float32": 1e-6}[PRECISE]


def derivative(function, points):
    if BACKEND == "tensorflow":
        import tensorflow as tf

        points = tf.convert_to_tensor(points)
        with tf.GradientTape() as tape:
            tape.watch(points)
            y = function(points)
        return array(tape.gradient(y, points))
    import jax

    return array(jax.vmap(jax.grad(function))(points))


@pytest.mark.parametrize("activation", DERIVATIVES, ids=lambda activation: activation.__name__)
def test_a_slope_is_the_derivative(activation):
    output = activation(keras.ops.convert_to_tensor(POINTS))
    found = DERIVATIVES[activation](output)
    assert keras.backend.standardize_dtype(found.dtype) == PRECISE
    np.testing.assert_allclose(array(found), derivative(activation, POINTS), rtol=1e-5, atol=ATOL)


def test_names_are_looked_up_as_these_functions():
    for activation in DERIVATIVES:
        assert keras.activations.get(activation.__name__) is activation


def test_a_stack_names_the_known_activations():
    with pytest.raises(ValueError, match="rematerialize") as caught:
        HighwayStack(2, activation="gelu", rematerialize=True)
    known = str(caught.value).split(": ")[1].split(".")[0]
    assert known.split(", ") == [activation.__name__ for activation in DERIVATIVES]
