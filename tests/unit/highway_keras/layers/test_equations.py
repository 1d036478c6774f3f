"""The highway equation is in one place: its forms agree, and everything that uses it follows a change."""

import doctest

import keras
import numpy as np
import pytest

from highway_keras import Highway, HighwayStack
from highway_keras.analysis import gate_statistics, statistics
from highway_keras.analysis import gradients as analysis
from highway_keras.layers import equations, gate, layer_math, stack_loop
from highway_keras.layers.equations import (
    DERIVATIVES,
    Partials,
    blend,
    blend_for_inference,
    blend_in_torch,
    gate_slope,
    gradients,
    partials,
)
from highway_keras.surgery.stacking import layers_of
from tests.unit.highway_keras.backend import BACKEND, PRECISE, array, gradient_tensors, inputs
from tests.unit.highway_keras.stacks import random_stack

H, X, T = np.random.default_rng(0).uniform(size=(3, 5))


def test_the_forms_of_the_equation_agree():
    np.testing.assert_allclose(blend_for_inference(H, X, T), blend(H, X, T, None), rtol=1e-14)
    np.testing.assert_allclose(blend(H, X, T, 1 - T), blend(H, X, T, None), rtol=1e-14)
    step = 1e-6
    of = partials(H, X, T)
    for number, partial in enumerate((of.block, of.inputs, of.transform)):
        above, below = ([value + sign * step * (number == i) for i, value in enumerate((H, X, T))] for sign in (1, -1))
        np.testing.assert_allclose(partial, (blend(*above, None) - blend(*below, None)) / (2 * step), rtol=0, atol=1e-9)


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's own operation")
def test_the_operation_of_pytorch_is_the_equation():
    import torch

    block, x, gate = (torch.tensor(values, dtype=torch.float64) for values in (H, X, T))
    np.testing.assert_allclose(blend_in_torch(block, x, gate), blend(H, X, T, None), rtol=1e-14)
    assert (blend_in_torch(block, x, torch.zeros_like(gate)) == x).all()
    assert (blend_in_torch(block, x, torch.ones_like(gate)) == block).all()


def test_gradients_are_the_partials_times_the_derivatives():
    upstream, slopes = np.arange(5.0), (lambda h: 2 * h, lambda t: 3 * t)
    of = partials(H, X, T)
    expected = upstream * of.block * 2 * H, upstream * of.transform * 3 * T, upstream * of.inputs
    np.testing.assert_allclose(gradients(upstream, H, X, T, slopes), expected, rtol=1e-14)


def test_a_stack_follows_a_change_of_the_equation(monkeypatch):
    def of_x_alone(upstream, block, inputs, transform, slopes):
        return Partials(0 * upstream, 0 * upstream, upstream)

    stack = random_stack(3, (None, 4), activation="tanh")
    monkeypatch.setattr(layer_math, "blend", lambda block, inputs, transform, carry: inputs)
    # PyTorch differentiates what it computes: all three arguments must have a gradient.
    monkeypatch.setattr(layer_math, "blend_in_torch", lambda block, inputs, transform: inputs + 0 * block * transform)
    monkeypatch.setattr(stack_loop, "gradients", of_x_alone)
    x, upstream = inputs(5, 4), inputs(5, 4, seed=2)
    of_x, *of_weights = (array(each) for each in gradient_tensors(stack, x, upstream, training=True))
    np.testing.assert_array_equal(array(stack(x)), x)
    np.testing.assert_array_equal(of_x, upstream)
    assert not any(each.any() for each in of_weights)


def test_jacobians_follow_a_change_of_the_equation(monkeypatch):
    layer = layers_of(random_stack(1, (None, 4), dtype="float32"))[0]
    monkeypatch.setattr(analysis, "partials", lambda h, x, t: Partials(0 * h, 0 * h, 1 + 0 * h))
    found = analysis.jacobian(layer, inputs(2, 4))
    np.testing.assert_array_equal(found.identity + found.rest, [np.eye(4)] * 2)


def test_the_slope_of_the_gate_is_the_derivative_of_the_sigmoid():
    assert DERIVATIVES[keras.activations.sigmoid] is gate_slope


def test_statistics_and_warnings_follow_a_change_of_the_slope(monkeypatch):
    model = keras.Sequential([keras.Input((2,)), Highway(transform_bias=-1.0)])
    monkeypatch.setattr(statistics, "gate_slope", lambda transform: 0 * transform)
    assert not gate_statistics(model, [(inputs(3, 2), np.zeros(3))]).slope.any()
    monkeypatch.setattr(gate, "gate_slope", lambda transform: 0 * transform)
    with pytest.warns(UserWarning, match="dead"):
        Highway(transform_bias=-1.0)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="the fused blend and the export are for TensorFlow only")
def test_the_fused_blend_and_exported_stacks_follow_a_change_of_the_equation(monkeypatch):
    from highway_keras.layers import fused_blend
    from pipelines.export import stack as exporting

    fused_blend._compiled.cache_clear()
    monkeypatch.setattr(fused_blend, "blend", lambda block, inputs, transform, carry: inputs)
    x = inputs(2, 4).astype("float32")
    activations = fused_blend.Activations(keras.activations.tanh, keras.activations.sigmoid)
    assert all(activation in DERIVATIVES for activation in activations)
    bias = np.zeros(4, "float32")
    np.testing.assert_array_equal(array(fused_blend.fused_blend((x + 1, x + 2), (bias, bias), x, activations)), x)
    fused_blend._compiled.cache_clear()
    monkeypatch.setattr(exporting, "blend_for_inference", lambda block, inputs, transform: inputs)
    stack = random_stack(2, (None, 4), dtype="float32")
    exported = exporting.InferenceStack.from_config(stack.get_config())
    exported.build((None, 4))
    np.testing.assert_array_equal(array(exported(x)), x)


def test_docstring_examples_are_true():
    assert doctest.testmod(equations).failed == 0


# Between the corners at -3, 0 and 3, and where functions are flat.
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
    if BACKEND == "torch":
        import torch

        points = torch.tensor(points, requires_grad=True)
        return array(torch.autograd.grad(function(points).sum(), points)[0])
    import jax

    return array(jax.vmap(jax.grad(function))(points))


@pytest.mark.parametrize("activation", DERIVATIVES, ids=lambda activation: activation.__name__)
def test_derivatives_equal_central_differences(activation):
    output = activation(keras.ops.convert_to_tensor(POINTS))
    found = DERIVATIVES[activation](output)
    assert keras.backend.standardize_dtype(found.dtype) == PRECISE
    np.testing.assert_allclose(array(found), derivative(activation, POINTS), rtol=1e-5, atol=ATOL)


def test_keras_finds_the_known_activations_by_name():
    for activation in DERIVATIVES:
        assert keras.activations.get(activation.__name__) is activation


def test_the_error_of_a_stack_names_the_known_activations():
    with pytest.raises(ValueError, match="rematerialize") as caught:
        HighwayStack(2, activation="gelu", rematerialize=True)
    known = str(caught.value).split(": ")[1].split(".")[0]
    assert known.split(", ") == [activation.__name__ for activation in DERIVATIVES]
