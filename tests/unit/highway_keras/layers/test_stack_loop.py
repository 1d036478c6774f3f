"""Outputs and gradients of a stack equal those of single layers, in every form of its loop."""

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_keras.layers import layer_math, recording, stack_loop
from highway_keras.layers.equations import DERIVATIVES
from highway_keras.layers.lesion import Lesion, lesioned
from tests.unit.highway_keras.backend import (
    BACKEND,
    PRECISE,
    array,
    compiled,
    compiles,
    few_examples,
    gradient_tensors,
    inputs,
    param_slow_on_jax,
    slow_on_jax,
)
from tests.unit.highway_keras.stacks import PARTS, assert_close, gradients, random_stack, unrolled

KNOWN = sorted(activation.__name__ for activation in DERIVATIVES)
UNKNOWN = ["gelu", "softplus"]  # derivative not known from the output
# Few sizes and examples, because JAX compiles every operation for each of them.
SHAPES = st.sampled_from([(4, 3), (1, 2, 1)])
examples = settings(few_examples, max_examples=3 if BACKEND == "jax" else 15)


@examples
@given(
    depth=st.integers(1, 12),
    shape=SHAPES,
    activation=st.sampled_from([*KNOWN, *UNKNOWN]),
    gate=st.sampled_from(["sigmoid", "hard_sigmoid"]),
    training=st.booleans(),
)
def test_outputs_equal_those_of_the_layers(depth, shape, activation, gate, training):
    stack = random_stack(depth, shape, activation=activation, gate_activation=gate)
    x = inputs(*shape)
    assert_close(array(stack(x, training=training)), array(unrolled(stack)(x)), PRECISE)


@examples
@given(
    depth=st.integers(1, 12),
    shape=SHAPES,
    activation=st.sampled_from(KNOWN),
    gate=st.sampled_from(["sigmoid", "hard_sigmoid"]),
    rematerialize=st.booleans(),
)
def test_gradients_equal_those_of_the_layers(depth, shape, activation, gate, rematerialize):
    stack = random_stack(depth, shape, activation=activation, gate_activation=gate, rematerialize=rematerialize)
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    assert_close(gradients(stack, x, upstream), gradients(unrolled(stack), x, upstream), PRECISE)


@pytest.mark.parametrize("depth", [1, param_slow_on_jax(2), 7, param_slow_on_jax(9)])
def test_gradients_with_recomputation_at_prime_and_square_depths(depth):
    stack = random_stack(depth, (4, 3), activation="tanh", rematerialize=True)
    x, upstream = inputs(4, 3), inputs(4, 3, seed=2)
    assert_close(gradients(stack, x, upstream), gradients(unrolled(stack), x, upstream), PRECISE)


@slow_on_jax
def test_gradients_of_an_activation_without_known_derivative():
    stack = random_stack(3, (4, 3), activation="gelu")
    x, upstream = inputs(4, 3), inputs(4, 3, seed=2)
    assert_close(gradients(stack, x, upstream), gradients(unrolled(stack), x, upstream), PRECISE)


@slow_on_jax
def test_gradients_of_inference_and_of_a_recorded_call():
    stack = random_stack(5, (4, 3), activation="tanh")
    x, upstream = inputs(4, 3), inputs(4, 3, seed=2)
    expected = gradients(stack, x, upstream, training=True)
    assert_close(gradients(stack, x, upstream, training=False), expected, PRECISE)
    with recording():
        assert_close(gradients(stack, x, upstream, training=True), expected, PRECISE)


@pytest.mark.parametrize(
    ("arguments", "shape", "xla"),
    [
        param_slow_on_jax({"activation": "relu"}, (4, 3), True),
        ({"activation": "tanh", "rematerialize": True}, (2, 3, 3), True),
        param_slow_on_jax({"activation": "gelu"}, (4, 3), True),
        *([({"activation": "tanh", "rematerialize": True}, (2, 3, 3), False)] if BACKEND == "tensorflow" else []),
    ],
)
def test_a_compiled_program_computes_the_same(arguments, shape, xla):
    stack = random_stack(7, shape, **arguments)
    x, upstream = inputs(*shape), inputs(*shape, seed=2)
    program = compiled(lambda x, upstream: gradient_tensors(stack, x, upstream, training=True), xla)
    found = dict(zip(("x", *PARTS), map(array, program(x, upstream)), strict=True))
    assert_close(found, gradients(unrolled(stack), x, upstream), PRECISE)


def test_float32_outputs_are_as_exact_as_those_of_the_layers():
    stack = random_stack(12, (4, 3), activation="tanh", dtype="float32")
    x, upstream = inputs(4, 3).astype("float32"), inputs(4, 3, seed=2).astype("float32")
    y = stack(x, training=True)
    assert keras.backend.standardize_dtype(y.dtype) == "float32"
    assert_close(array(y), array(unrolled(stack)(x)), "float32")
    assert_close(gradients(stack, x, upstream), gradients(unrolled(stack), x, upstream), "float32")


@slow_on_jax
@pytest.mark.skipif(BACKEND != "jax", reason="the other tests are in float64")
def test_float64_outputs_and_gradients_equal_those_of_the_layers_on_jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    try:
        # Not tanh: Keras narrows it unless JAX had float64 before Keras started.
        stack = random_stack(5, (4, 3), activation="sigmoid", dtype="float64", rematerialize=True)
        x, upstream = (inputs(4, 3, seed=seed).astype("float64") for seed in (1, 2))
        assert stack(x, training=True).dtype == "float64"
        assert_close(gradients(stack, x, upstream), gradients(unrolled(stack), x, upstream), "float64")
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.parametrize(
    ("policy", "rematerialize"), [(PRECISE, False), param_slow_on_jax(PRECISE, True), ("mixed_bfloat16", False)]
)
def test_a_wide_stack_keeps_the_kernels_apart_and_computes_the_same(policy, rematerialize, monkeypatch):
    stack = random_stack(5, (4, 3), activation="tanh", dtype=policy, rematerialize=rematerialize)
    x, upstream = inputs(4, 3), inputs(4, 3, seed=2)
    closed = keras.ops.convert_to_tensor([[True, False, True]] * 5)

    def results():
        with lesioned({stack.name: Lesion(closed)}):
            lesion = array(stack(x))
        return {"y": array(stack(x)), "T": array(stack.gates(x)), "lesion": lesion, **gradients(stack, x, upstream)}

    expected = results()
    monkeypatch.setattr(layer_math, "WIDE", 3)
    calls, gates = [], stack_loop.gates
    monkeypatch.setattr(stack_loop, "gates", lambda x, weights, math: calls.append(weights) or gates(x, weights, math))
    found = results()
    assert [len(weights.kernels) for weights in calls] == [2]
    if policy == PRECISE:
        assert_close(found, expected, PRECISE)
    else:
        for name, value in expected.items():
            np.testing.assert_allclose(found[name], value, atol=0.05 * np.abs(value).max(), err_msg=name)


@pytest.mark.skipif(BACKEND != "torch", reason="PyTorch's own check of gradients, in float64")
@pytest.mark.parametrize("rematerialize", [False, True])
def test_first_and_second_derivatives_pass_the_check_of_pytorch(rematerialize):
    import torch

    stack = random_stack(5, (3, 4), activation="tanh", dtype="float64", rematerialize=rematerialize)
    given = [torch.tensor(inputs(3, 4), dtype=torch.float64, requires_grad=True), *[v.value for v in stack.weights]]

    def output(x, *_):
        return stack(x, training=True)

    assert torch.autograd.gradcheck(output, given, fast_mode=True)
    assert torch.autograd.gradgradcheck(output, given, fast_mode=True)


@slow_on_jax
def test_second_derivatives_equal_those_of_the_layers():
    stack = random_stack(5, (4, 3), activation="tanh", rematerialize=True)  # one plain layer, then two segments
    x = inputs(4, 3)
    assert_close(second_derivative(stack, x), second_derivative(unrolled(stack), x), PRECISE)


def second_derivative(layer, x):
    """Returns the gradient of the squared norm of the gradient of the squared norm of y."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                y = tf.reduce_sum(layer(x, training=True) ** 2)
            length = tf.reduce_sum(inner.gradient(y, x) ** 2)
        return array(outer.gradient(length, x))
    if BACKEND == "torch":
        import torch

        x = torch.tensor(x, requires_grad=True)
        (slope,) = torch.autograd.grad((layer(x, training=True) ** 2).sum(), x, create_graph=True)
        return array(torch.autograd.grad((slope**2).sum(), x)[0])
    import jax

    state = [[variable.value for variable in layer.trainable_variables], []]

    def squares(x):
        return (layer.stateless_call(*state, x, training=True)[0] ** 2).sum()

    return array(jax.grad(lambda x: (jax.grad(squares)(x) ** 2).sum())(x))


@slow_on_jax
@pytest.mark.skipif(BACKEND != "jax", reason="only JAX reports the memory of a program")
def test_with_recomputation_memory_grows_with_the_root_of_depth():
    import jax

    def memory(depth, rematerialize):
        stack = random_stack(depth, (256, 2), activation="tanh", rematerialize=rematerialize)
        x = inputs(256, 2)
        program = jax.jit(lambda x: gradient_tensors(stack, x, x, training=True))
        return program.lower(x).compile().memory_analysis().temp_size_in_bytes

    shallow, deep, kept = memory(64, True), memory(1024, True), memory(1024, False)
    assert deep / shallow == pytest.approx(4, rel=0.3)
    assert kept / deep > 8


@compiles
def test_the_program_does_not_grow_with_depth():
    calls = []

    def counted(x):
        calls.append(1)
        return keras.ops.tanh(x)

    lengths = []
    for depth in (2, 50):
        stack = random_stack(depth, (4, 3), activation=counted)
        calls.clear()
        compiled(lambda x, stack=stack: stack(x, training=True))(inputs(4, 3))
        lengths.append(len(calls))
    assert lengths[0] == lengths[1]
    assert lengths[0] > 0
