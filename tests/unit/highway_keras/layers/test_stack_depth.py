"""A stack of 1,000 layers is built, called, trained, saved and loaded without recursion."""

import keras
import numpy as np

from highway_keras import HighwayStack
from tests.unit.highway_keras.backend import array

DEPTH = 1000
# At a bias of -10 the gates are 4.5e-5, and so are the gradients of a layer, roughly. At this rate a bias moves by 1e-5
# and more, ten times the resolution of float32 at 10; at Keras's rate of 0.01 rounding would undo the step.
RATE = 1.0


def deep(levels, function):
    """Calls a function under `levels` stack frames."""
    return function() if levels == 0 else deep(levels - 1, function)


def test_a_thousand_layers_need_no_recursion_even_in_a_deep_call_stack(tmp_path):
    keras.utils.set_random_seed(0)
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")

    def whole_life():
        inputs = keras.Input((3,))
        stack = HighwayStack(DEPTH, activation="tanh", transform_bias=-10.0)
        model = keras.Model(inputs, keras.layers.Dense(1)(stack(inputs)))
        model.compile(keras.optimizers.SGD(RATE), "mse")
        before = [array(weight) for weight in stack.weights]
        model.fit(x, x[:, :1], verbose=0)
        model.save(tmp_path / "deep.keras")
        return model, before, keras.models.load_model(tmp_path / "deep.keras")

    model, before, loaded = deep(600, whole_life)
    for weight, old in zip(model.layers[1].weights, before, strict=True):
        assert np.isfinite(array(weight)).all()
        assert weight.shape[0] == DEPTH
        moved = (array(weight) != old).reshape(DEPTH, -1).any(axis=1)
        assert moved.all(), f"{weight.name} of layers {np.flatnonzero(~moved)}"
    np.testing.assert_allclose(array(loaded(x)), array(model(x)), rtol=1e-5)
    assert loaded.count_params() == DEPTH * 24 + 4
