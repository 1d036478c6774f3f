"""Errors for wrong arguments, and the effect of each argument."""

from functools import partial

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway, Highway, HighwayStack
from tests.unit.highway_keras.backend import array, slow_on_jax


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, True])
def test_a_dropout_rate_out_of_range_is_rejected(rate):
    with pytest.raises(ValueError, match=rf"`dropout` must be a rate in \[0, 1\)\. Received: dropout={rate}"):
        Highway(dropout=rate)


def test_an_unknown_carry_gate_is_rejected():
    with pytest.raises(ValueError, match=r"'coupled' or 'separate'\. Received: carry_gate='open'"):
        Highway(carry_gate="open")


def test_an_unknown_argument_is_rejected():
    with pytest.raises((ValueError, TypeError), match="units"):
        Highway(units=3)


@pytest.mark.parametrize("size", [0, -1, (3, 0), (), (2.5, 3), 2.5, None, "3", True, (True, 3)])
def test_an_invalid_kernel_size_is_rejected(size):
    with pytest.raises(ValueError, match=r"`kernel_size` must be a positive integer, or a tuple of them\. Received: "):
        ConvHighway(size)


def test_a_kernel_size_of_another_rank_than_the_input_is_rejected():
    with pytest.raises(ValueError, match=r"2 here\. Received: kernel_size=\(3, 3, 3\), input_shape=\(None, 8, 8, 2\)"):
        ConvHighway((3, 3, 3)).build((None, 8, 8, 2))


@pytest.mark.parametrize("layer", [Highway(), ConvHighway(3)])
def test_an_undefined_last_axis_is_rejected(layer):
    with pytest.raises(ValueError, match=r"last axis .* must be defined.* Received: input_shape=\(None, 4, None\)"):
        layer.build((None, 4, None))


@pytest.mark.parametrize(("layer", "shape"), [(Highway(), (3,)), (ConvHighway(3), (2, 3)), (ConvHighway(3), (1,) * 6)])
def test_an_input_of_wrong_rank_is_rejected(layer, shape):
    with pytest.raises(ValueError, match="ndim"):
        layer(np.zeros(shape, "float32"))


def test_an_input_of_another_size_than_the_layer_was_built_for_is_rejected():
    layer = Highway()
    layer.build((None, 4))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 4"):
        layer(np.zeros((2, 5), "float32"))


def test_block_and_gates_have_separate_regularizers():
    layer = Highway(kernel_regularizer=keras.regularizers.L2(0.5), transform_regularizer=keras.regularizers.L1(0.25))
    layer.build((None, 4))
    losses = sorted(float(array(loss)) for loss in layer.losses)
    kernel, transform = array(layer.kernel), array(layer.transform_kernel)
    np.testing.assert_allclose(losses, sorted([0.5 * np.sum(kernel**2), 0.25 * np.abs(transform).sum()]), rtol=1e-5)


def test_block_and_gates_have_separate_constraints():
    layer = Highway(
        kernel_constraint="non_neg", transform_constraint=keras.constraints.MaxNorm(1.0), carry_gate="separate"
    )
    layer.build((None, 4))
    assert isinstance(layer.kernel.constraint, keras.constraints.NonNeg)
    assert isinstance(layer.transform_kernel.constraint, keras.constraints.MaxNorm)
    assert layer.carry_kernel.constraint is layer.transform_constraint
    assert layer.bias.constraint is layer.transform_bias.constraint is None


def test_block_and_gate_have_separate_initializers():
    layer = Highway(kernel_initializer="ones", transform_initializer="zeros", bias_initializer="ones")
    layer.build((None, 4))
    assert [float(array(w).mean()) for w in (layer.kernel, layer.transform_kernel, layer.bias)] == [1.0, 0.0, 1.0]


@slow_on_jax
def test_both_layers_train_in_fit():
    inputs = keras.Input((8, 8, 3))
    x = ConvHighway(3, batch_normalization=True, dropout=0.2)(inputs)
    x = Highway(dropout=0.2, carry_gate="separate")(keras.layers.Flatten()(x))
    model = keras.Model(inputs, keras.layers.Dense(1)(x))
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    before = [array(weight) for weight in model.weights]
    model.fit(rng.normal(size=(8, 8, 8, 3)), rng.normal(size=(8, 1)), batch_size=4, verbose=0)
    assert [w.path for w, old in zip(model.weights, before, strict=True) if np.array_equal(array(w), old)] == []


@pytest.mark.parametrize("layer", [Highway, partial(HighwayStack, 3)], ids=["single", "stack"])
def test_the_block_takes_its_seed_before_the_gates(layer):
    """Published runs repeat only if the seeds are drawn in this order."""
    keras.utils.set_random_seed(0)
    seeds = [keras.initializers.HeNormal().seed for _ in range(2)]
    keras.utils.set_random_seed(0)
    made = layer()
    assert [made.kernel_initializer.seed, made.transform_initializer.seed] == seeds
