"""The layers compute the paper's equations, with every option, rank and size."""

import keras
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from highway_keras import ConvHighway, Highway, HighwayStack
from highway_keras.layers import recording
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import (
    PRECISE,
    TOLERANCE,
    array,
    few_examples,
    inputs,
    param_slow_on_jax,
    scramble,
    weights_of,
)

OPTIONS = {
    "default": ({}, {}),
    "tanh": ({"activation": "tanh"}, {"activation": np.tanh}),
    "separate": ({"carry_gate": "separate"}, {}),
    "normalized": ({"batch_normalization": True}, {}),
    "normalized, separate, tanh": (
        {"batch_normalization": True, "carry_gate": "separate", "activation": "tanh"},
        {"activation": np.tanh},
    ),
    "dropout": ({"dropout": 0.3}, {"kept": 0.7}),
    "dropout, separate": ({"dropout": 0.3, "carry_gate": "separate"}, {"kept": 0.7}),
    "hard gate": ({"gate_activation": "hard_sigmoid"}, {"gate": lambda z: np.clip(z / 6 + 0.5, 0, 1)}),
}
SHAPES = {"dense": (6, 5), "1-D": (3, 6, 4), "2-D": (2, 5, 6, 3), "3-D": (2, 3, 4, 3, 2)}


def random_layer(kind, x, **arguments):
    return random_layer_of_shape(x.shape, None if kind == "dense" else 3, **arguments)


def random_layer_of_shape(shape, kernel_size, **arguments):
    arguments |= {"kernel_initializer": "zeros", "transform_initializer": "zeros", "dtype": PRECISE}
    layer = Highway(**arguments) if kernel_size is None else ConvHighway(kernel_size, **arguments)
    layer.build(tuple(shape))
    return scramble(layer)


@pytest.mark.parametrize("kind", ["dense", "2-D", *map(param_slow_on_jax, ("1-D", "3-D"))])
@pytest.mark.parametrize("option", OPTIONS)
def test_inference_equals_the_reference(kind, option):
    arguments, options = OPTIONS[option]
    x = inputs(*SHAPES[kind])
    layer = random_layer(kind, x, **arguments)
    expected = reference.forward(x, weights_of(layer), **options)
    np.testing.assert_allclose(array(layer(x, training=False)), expected, **TOLERANCE)


@pytest.mark.parametrize("kind", ["dense", "2-D"])
def test_gates_equal_those_of_inference(kind):
    x = inputs(*SHAPES[kind])
    layer = random_layer(kind, x, dropout=0.3)
    expected = reference.transform(x, weights_of(layer)) * 0.7
    np.testing.assert_allclose(array(layer.gates(x)), expected, **TOLERANCE)
    with recording() as recorded:
        layer(x, training=False)
    np.testing.assert_allclose(array(recorded[layer.name]), expected, **TOLERANCE)


@pytest.mark.parametrize("layer", [Highway(), HighwayStack(2), ConvHighway(3)])
def test_gates_need_values_of_the_units_of_the_layer(layer):
    shape = (2, 6, 6, 3) if isinstance(layer, ConvHighway) else (2, 3)
    # A model of symbolic gates would lack the layer.
    with pytest.raises(ValueError, match=r"`gates` does not accept symbolic inputs.* Use `highway_keras.analysis.Gate"):
        layer.gates(keras.Input(shape[1:]))
    layer.build(shape)
    with pytest.raises(ValueError, match=r"has 3 units. Received: inputs of shape \(2, .*4\)"):
        layer.gates(np.zeros((*shape[:-1], 4), "float32"))


@pytest.mark.parametrize("kind", ["dense", "2-D"])
def test_normalization_uses_batch_moments_in_training_and_keeps_their_average(kind):
    x = inputs(*SHAPES[kind])
    layer = random_layer(kind, x, batch_normalization=True)
    before = weights_of(layer)
    expected = reference.forward(x, before, training=True)
    np.testing.assert_allclose(array(layer(x, training=True)), expected, **TOLERANCE)
    z = reference.affine(x, before["kernel"])
    mean = 0.99 * before["moving_mean"] + 0.01 * z.mean(tuple(range(z.ndim - 1)))
    np.testing.assert_allclose(weights_of(layer)["moving_mean"], mean, **TOLERANCE)


@pytest.mark.parametrize("carry_gate", ["coupled", "separate"])
def test_a_dropped_unit_carries_its_input(carry_gate):
    x = inputs(400, 8)
    layer = random_layer("dense", x, dropout=0.3, seed=3, carry_gate=carry_gate)
    with recording() as recorded:
        y = array(layer(x, training=True))
    kept = array(recorded[layer.name]) != 0
    assert abs(kept.mean() - 0.7) < 0.03
    assert 0 < kept.mean(axis=0).min() < 1  # independent for each unit and example
    assert 0 < kept.mean(axis=1).min() < 1
    np.testing.assert_allclose(y, reference.forward(x, weights_of(layer), kept=kept), **TOLERANCE)


def test_dropout_differs_between_calls_and_repeats_with_its_seed():
    x = inputs(20, 8)
    first, second = (random_layer("dense", x, dropout=0.5, seed=7) for _ in range(2))
    one, two = array(first(x, training=True)), array(first(x, training=True))
    assert not np.allclose(one, two)
    np.testing.assert_array_equal(array(second(x, training=True)), one)


@few_examples
@given(shape=st.lists(st.integers(1, 4), min_size=2, max_size=5))
def test_highway_takes_any_rank(shape):
    x = inputs(*shape)
    layer = random_layer_of_shape(shape, None)
    assert layer.compute_output_shape(tuple(shape)) == tuple(shape)
    np.testing.assert_allclose(array(layer(x)), reference.forward(x, weights_of(layer)), **TOLERANCE)


@st.composite
def convolutions(draw):
    axes = draw(st.integers(1, 3))
    size = st.integers(1, 4)
    kernel = draw(st.one_of(size, st.tuples(*[size] * axes)))
    return kernel, (draw(st.integers(1, 2)), *[draw(st.integers(1, 5)) for _ in range(axes)], draw(st.integers(1, 3)))


@few_examples
@given(convolutions())
def test_conv_highway_takes_one_to_three_axes_and_any_kernel(drawn):
    kernel_size, shape = drawn
    x = inputs(*shape)
    layer = random_layer_of_shape(shape, kernel_size)
    assert layer.compute_output_shape(shape) == shape
    np.testing.assert_allclose(array(layer(x)), reference.forward(x, weights_of(layer)), **TOLERANCE)


@pytest.mark.parametrize("kind", ["dense", "2-D", *map(param_slow_on_jax, ("1-D", "3-D"))])
def test_all_axes_but_the_last_may_be_unknown(kind):
    layer = Highway() if kind == "dense" else ConvHighway(3)
    shape = (*[None] * (len(SHAPES[kind]) - 1), 5)
    symbolic = layer(keras.KerasTensor(shape, dtype="float32"))
    assert symbolic.shape == shape
    assert symbolic.dtype == "float32"
    x = inputs(*[3] * (len(shape) - 1), 5).astype("float32")
    assert tuple(layer(x).shape) == x.shape
