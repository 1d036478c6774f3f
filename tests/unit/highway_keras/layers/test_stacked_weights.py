"""Initializers, regularizers and constraints act on stacked weights as on single layers."""

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack
from highway_keras.initializers import caffe_xavier
from highway_keras.layers.stacked_weights import stacked_initializer
from tests.unit.highway_keras.backend import array, param_slow_on_jax, slow_on_jax

pytestmark = pytest.mark.usefixtures("keras_initial_values")
DEPTH, UNITS = 24, 20
KERNEL = np.random.default_rng(0).normal(size=(5, 3, 3)).astype("float32")
STD = {
    "he_normal": np.sqrt(2 / UNITS),
    "glorot_uniform": np.sqrt(1 / UNITS),
    "lecun_uniform": np.sqrt(1 / UNITS),
    "orthogonal": np.sqrt(1 / UNITS),
    "random_normal": 0.05,
    "truncated_normal": 0.05 * 0.8796,  # truncated at two standard deviations
}


def kernels(**arguments):
    stack = HighwayStack(DEPTH, **arguments)
    stack.build((None, UNITS))
    return array(stack.kernel), array(stack.transform_kernel)


@slow_on_jax
@pytest.mark.parametrize("name", STD)
def test_each_layer_is_initialized_like_a_single_layer(name):
    keras.utils.set_random_seed(0)
    of_block, of_gate = kernels(kernel_initializer=name, transform_initializer=name)
    for kernel in (of_block, of_gate):
        np.testing.assert_allclose(kernel.std(), STD[name], rtol=0.03)
        np.testing.assert_allclose(kernel.std(axis=(1, 2)), STD[name], rtol=0.15)  # per layer
        assert len(np.unique(kernel)) > 0.99 * kernel.size  # no layer repeats another
    assert len(np.intersect1d(of_block, of_gate)) < 0.01 * of_block.size


@slow_on_jax
@pytest.mark.parametrize("name", ["he_normal", "glorot_uniform", "lecun_uniform"])
def test_the_biases_of_each_layer_are_initialized_like_those_of_a_single_layer(name):
    keras.utils.set_random_seed(0)
    stack = HighwayStack(DEPTH, bias_initializer=name, transform_bias=keras.initializers.get(name))
    stack.build((None, UNITS))
    for biases in (array(stack.bias), array(stack.transform_bias)):
        np.testing.assert_allclose(biases.std(), STD[name], rtol=0.1)
        assert len(np.unique(biases)) == biases.size


def test_limits_of_uniform_and_truncated_draws_are_those_of_a_single_layer():
    uniform, normal = kernels(kernel_initializer="glorot_uniform", transform_initializer="he_normal")
    limit = np.sqrt(6 / (2 * UNITS))
    assert 0.99 * limit < np.abs(uniform).max() <= limit
    deviation = np.sqrt(2 / UNITS) / 0.8796
    assert 1.95 * deviation < np.abs(normal).max() <= 2.001 * deviation


def test_caffe_xavier_is_not_truncated():
    kernel, _ = kernels(kernel_initializer=caffe_xavier())
    np.testing.assert_allclose(kernel.std(), np.sqrt(2 / UNITS), rtol=0.03)
    assert np.abs(kernel).max() > 3 * np.sqrt(2 / UNITS)


def test_each_layer_is_orthogonal():
    kernel, _ = kernels(kernel_initializer="orthogonal")
    np.testing.assert_allclose(kernel @ kernel.swapaxes(1, 2), np.tile(np.eye(UNITS), (DEPTH, 1, 1)), atol=1e-5)


def test_initializers_receive_the_shape_of_a_single_layer():
    asked = []

    def function(shape, dtype=None):
        asked.append(tuple(shape))
        return keras.ops.full(shape, len(asked), dtype=dtype)

    identity, counted = kernels(kernel_initializer="identity", transform_initializer=function)
    np.testing.assert_array_equal(identity, np.tile(np.eye(UNITS), (DEPTH, 1, 1)))
    assert set(asked) == {(UNITS, UNITS)}
    np.testing.assert_array_equal(counted[:, 0, 0], np.arange(1, DEPTH + 1))


def test_biases_start_at_the_given_values():
    stack = HighwayStack(3, transform_bias=-4.0, bias_initializer=keras.initializers.Constant([1.0, 2.0]))
    stack.build((None, 2))
    np.testing.assert_array_equal(array(stack.transform_bias), np.full((3, 2), -4.0))
    np.testing.assert_array_equal(array(stack.bias), [[1.0, 2.0]] * 3)


@pytest.mark.parametrize("initializer", [keras.initializers.HeNormal, keras.initializers.Orthogonal])
def test_seeds_repeat_and_layers_differ(initializer):
    def drawn(seed):
        return array(stacked_initializer(initializer(seed=seed), 4)((4, 6, 6)))

    first = drawn(1)
    np.testing.assert_array_equal(drawn(1), first)
    assert not np.allclose(drawn(2), first)
    for one in range(4):
        for other in range(one):
            assert not np.allclose(first[one], first[other])


@slow_on_jax
@pytest.mark.parametrize("initializer", [keras.initializers.HeNormal, keras.initializers.Orthogonal])
def test_a_seed_generator_draws_every_layer_and_stack_differently(initializer):
    def drawn():
        generator = keras.random.SeedGenerator(3)
        return [array(stacked_initializer(initializer(seed=generator), 2)((2, 6, 6))) for _ in range(2)]

    layers = np.concatenate(drawn())
    np.testing.assert_array_equal(np.concatenate(drawn()), layers)
    assert len(np.unique(layers)) == layers.size


@slow_on_jax
def test_the_global_seed_repeats_a_stack():
    drawn = []
    for _ in range(2):
        keras.utils.set_random_seed(5)
        drawn.append(kernels(transform_initializer="orthogonal"))
    np.testing.assert_array_equal(drawn[0], drawn[1])


@pytest.mark.parametrize(
    "regularizer",
    [
        keras.regularizers.L2(0.1),
        param_slow_on_jax(keras.regularizers.L1(0.1)),
        param_slow_on_jax(keras.regularizers.OrthogonalRegularizer(0.1, mode="rows")),
        param_slow_on_jax(keras.regularizers.OrthogonalRegularizer(0.1, mode="columns")),
        keras.ops.max,  # any function
    ],
)
def test_the_penalty_is_the_sum_over_the_layers(regularizer):
    stack = HighwayStack(5, kernel_regularizer=regularizer, kernel_initializer=keras.initializers.Constant(KERNEL))
    stack.build((None, 3))
    (found,) = stack.losses
    expected = sum(array(regularizer(keras.ops.convert_to_tensor(layer))) for layer in KERNEL)
    np.testing.assert_allclose(array(found), expected, rtol=1e-5)


@pytest.mark.parametrize(
    "of_one",
    [
        keras.constraints.MaxNorm(0.5, axis=0),
        param_slow_on_jax(keras.constraints.MaxNorm(0.5, axis=1)),
        param_slow_on_jax(keras.constraints.MaxNorm(0.5, axis=[0, 1])),
        param_slow_on_jax(keras.constraints.UnitNorm(axis=0)),
        param_slow_on_jax(keras.constraints.MinMaxNorm(0.1, 0.2, rate=0.5, axis=0)),
        keras.constraints.NonNeg(),
    ],
    ids=lambda of_one: type(of_one).__name__,
)
def test_a_constraint_acts_on_each_layer(of_one):
    stack = HighwayStack(5, transform_constraint=of_one, transform_initializer=keras.initializers.Constant(KERNEL))
    stack.build((None, 3))
    found = array(stack.transform_kernel.constraint(stack.transform_kernel))
    expected = np.stack([array(of_one(keras.ops.convert_to_tensor(layer))) for layer in KERNEL])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-7)
    assert not np.allclose(found, KERNEL)


def test_stacks_have_no_penalty_or_constraint_by_default():
    stack = HighwayStack(2)
    stack.build((None, 3))
    assert stack.losses == []
    assert all(weight.constraint is None for weight in stack.weights)


def test_block_and_gate_have_separate_regularizers_and_constraints():
    stack = HighwayStack(2, kernel_regularizer="l2", transform_constraint="non_neg")
    stack.build((None, 3))
    names = {weight.name for weight in stack.weights if weight.regularizer is not None}
    assert names == {"kernel"}
    assert {weight.name for weight in stack.weights if weight.constraint is not None} == {"transform_kernel"}


@slow_on_jax
def test_a_training_step_equals_that_of_the_layers():
    arguments = {
        "kernel_regularizer": keras.regularizers.L2(0.1),
        "transform_regularizer": keras.regularizers.OrthogonalRegularizer(0.1),
        "kernel_constraint": keras.constraints.MaxNorm(0.8, axis=0),
        "transform_constraint": keras.constraints.UnitNorm(axis=0),
    }
    stack = HighwayStack(3, activation="tanh", **arguments)
    stack.build((None, 4))
    layers = [Highway(activation="tanh", **arguments) for _ in range(3)]
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    models = [keras.Sequential([keras.Input((4,)), *of_model]) for of_model in ([stack], layers)]
    for number, layer in enumerate(layers):
        layer.set_weights([array(weight)[number] for weight in stack.weights])
    for model in models:
        model.compile(keras.optimizers.SGD(0.5), "mse")
        model.fit(x, 3 * x, batch_size=8, verbose=0)
    for number, layer in enumerate(layers):
        for weight, of_one in zip(stack.weights, layer.weights, strict=True):
            np.testing.assert_allclose(array(weight)[number], array(of_one), rtol=1e-4, atol=1e-6, err_msg=weight.name)
    assert np.linalg.norm(array(stack.kernel), axis=1).max() <= 0.8 + 1e-5
    np.testing.assert_allclose(np.linalg.norm(array(stack.transform_kernel), axis=1), 1, rtol=1e-4)
