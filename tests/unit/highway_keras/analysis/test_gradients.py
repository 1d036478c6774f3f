"""Gradient norms against central differences of the loss, and Jacobians against those of the outputs."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayConnection, HighwayStack
from highway_keras.analysis.gradients import gradient_norms, jacobian
from highway_keras.surgery.stacking import layers_of
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.analysis.small_nets import ZEROS, examples, net
from tests.unit.highway_keras.backend import array, param_slow, param_slow_on_jax, scramble, weights_of


def loss_of(model, x, y):
    outputs = np.asarray(model.predict_on_batch(x), "float64")
    return np.mean(np.log(np.exp(outputs).sum(axis=1)) - outputs[np.arange(len(y)), y])


def differences(model, variable, x, y, step=1e-2):
    """Computes the gradient of the loss by central differences."""
    before = array(variable).astype("float32")
    found = np.zeros(before.shape)
    for index in np.ndindex(before.shape):
        ends = []
        for sign in (1, -1):
            moved = before.copy()
            moved[index] += sign * step
            variable.assign(moved)
            ends.append(loss_of(model, x, y))
        found[index] = (ends[0] - ends[1]) / (2 * step)
    variable.assign(before)
    return found


@pytest.mark.parametrize("name", ["dense", "stacked", param_slow("conv")])
def test_norms_equal_those_of_central_differences_of_the_loss(name):
    model, (x, y) = net(name), examples(name, 6)
    found = gradient_norms(model, x, y)
    expected = {}
    for layer in model.layers + [
        each for inner in model.layers if isinstance(inner, keras.Model) for each in inner.layers
    ]:
        for variable in () if isinstance(layer, keras.Model) else layer.trainable_variables:
            slopes = differences(model, variable, x, y)
            rows = {layer.name: slopes}
            if layer.name == "stack":
                rows = {f"stack_{number + 1:02}": row for number, row in enumerate(slopes)}
            for row, values in rows.items():
                weight = variable.path.partition(f"{layer.name}/")[2]
                expected.setdefault(row, {})[weight] = np.linalg.norm(values)
    assert found.keys() == expected.keys()
    for layer, norms in expected.items():
        assert found[layer] == pytest.approx(norms, rel=0.02, abs=2e-4), layer


@pytest.mark.parametrize(("activation", "use_bias"), [("tanh", True), ("tanh", False), param_slow_on_jax("relu", True)])
def test_the_parts_add_up_to_the_jacobian(activation, use_bias):
    stack = HighwayStack(2, activation=activation, use_bias=use_bias, **ZEROS)
    stack.build((None, 3))
    layer = layers_of(scramble(stack))[1]
    x = np.random.default_rng(0).normal(size=(4, 3)).astype("float32")
    weights = weights_of(layer)
    function = {"tanh": np.tanh, "relu": reference.relu}[activation]
    columns = []
    for unit in range(3):
        ends = [reference.forward(x + sign * 1e-5 * np.eye(3)[unit], weights, activation=function) for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / 2e-5)
    parts = jacobian(layer, x)
    np.testing.assert_allclose(parts.identity + parts.rest, np.stack(columns, axis=2), rtol=1e-3, atol=1e-4)
    diagonals = np.stack([np.diag(each) for each in parts.identity])
    np.testing.assert_allclose(diagonals, 1 - reference.transform(x, weights), rtol=1e-5)


@pytest.mark.parametrize(
    "layer",
    [
        Highway(carry_gate="separate"),
        Highway(dropout=0.5),
        Highway(batch_normalization=True),
        Highway(activation="gelu"),
        ConvHighway(3),
        HighwayStack(2),
    ],
)
def test_other_layers_are_rejected(layer):
    with pytest.raises(ValueError, match="Jacobian is known for"):
        jacobian(layer, np.zeros((1, 3)))


def test_a_layer_without_weights_has_no_jacobian():
    with pytest.raises(ValueError, match="has no weights yet: build it first"):
        jacobian(Highway(), np.zeros((1, 3)))


def test_a_penalty_on_the_outputs_does_not_change_the_jacobian():
    x = np.ones((1, 3), "float32")
    layers = [Highway(), Highway(activity_regularizer="l2")]
    for layer in layers:
        layer.build((None, 3))
    layers[1].set_weights(layers[0].get_weights())
    np.testing.assert_array_equal(*(jacobian(layer, x).rest for layer in layers))


def test_gradient_norms_include_plain_layers():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, name="plain", kernel_initializer="zeros")])
    x, y = examples("dense", 5)
    kernel = x.T @ (np.full((5, 3), 1 / 3) - np.eye(3)[y]) / 5
    found = gradient_norms(model, x, y)
    assert found["plain"]["kernel"] == pytest.approx(np.linalg.norm(kernel), rel=1e-5)


def test_equal_names_do_not_hide_a_weight():
    """Two layers of a block, and two nested models, have weights of the same name."""

    def dense(name):
        return keras.layers.Dense(2, use_bias=False, kernel_initializer="zeros", name=name)

    block = keras.Sequential([keras.Input((2,)), dense("a"), dense("b")], name="block")
    halves = [keras.Sequential([keras.Input((2,)), dense("same")], name=name) for name in ("left", "right")]
    connection = HighwayConnection(block, transform_initializer="zeros", name="connection")
    model = scramble(keras.Sequential([keras.Input((2,)), connection, *halves]))
    x, y = np.random.default_rng(0).normal(size=(3, 2)).astype("float32"), np.array([0, 1, 1])
    found = gradient_norms(model, x, y)
    assert {layer: list(norms) for layer, norms in found.items()} == {
        "connection": ["transform_kernel", "transform_bias", "block/a/kernel", "block/b/kernel"],
        "same": ["kernel"],
        "same:2": ["kernel"],
    }
    norms = [norm for layer in found.values() for norm in layer.values()]
    slopes = [np.linalg.norm(differences(model, variable, x, y)) for variable in model.trainable_variables]
    assert sorted(norms) == pytest.approx(sorted(slopes), rel=0.02, abs=2e-4)
