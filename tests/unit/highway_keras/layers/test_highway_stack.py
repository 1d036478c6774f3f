"""HighwayStack: arguments, errors, shapes, gates, masks and config."""

import json
import warnings

import keras
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from highway_keras import HighwayStack
from highway_keras.layers import recording
from tests.unit.highway_keras.backend import BACKEND, PRECISE, array, compiled, few_examples, inputs, slow_on_jax
from tests.unit.highway_keras.stacks import PARTS, assert_close, random_stack, unrolled

OPTIONS = {
    "activation": "tanh",
    "gate_activation": "hard_sigmoid",
    "transform_bias": "auto",
    "rematerialize": True,
    "kernel_initializer": keras.initializers.RandomUniform(-0.1, 0.1, seed=1),
    "transform_initializer": keras.initializers.Orthogonal(seed=2),
    "bias_initializer": "ones",
    "kernel_regularizer": keras.regularizers.L2(0.01),
    "transform_regularizer": keras.regularizers.OrthogonalRegularizer(0.02),
    "kernel_constraint": keras.constraints.MaxNorm(2.0, axis=0),
    "transform_constraint": keras.constraints.UnitNorm(axis=0),
    "name": "named",
    "dtype": "mixed_bfloat16",
    "trainable": False,
}


@pytest.mark.parametrize("depth", [0, -1, 2.0, True, None, "3"])
def test_an_invalid_depth_is_rejected(depth):
    with pytest.raises(ValueError, match=rf"`depth` must be a positive integer.* Received: depth={depth}"):
        HighwayStack(depth)


@pytest.mark.parametrize(
    ("argument", "value"),
    [("carry_gate", "separate"), ("batch_normalization", True), ("dropout", 0.1), ("activity_regularizer", "l2")],
)
def test_unsupported_arguments_are_rejected(argument, value):
    with pytest.raises(ValueError, match=f"A stack has no `{argument}`.* Received: {argument}={value!r}"):
        HighwayStack(3, **{argument: value})


def test_unsupported_arguments_may_have_their_defaults():
    HighwayStack(3, carry_gate="coupled", batch_normalization=False, dropout=0.0)


@pytest.mark.parametrize("argument", ["activation", "gate_activation"])
def test_recomputation_needs_known_derivatives(argument):
    function = keras.activations.gelu if argument == "activation" else lambda z: keras.ops.sigmoid(2 * z)
    with pytest.raises(ValueError, match=rf"`rematerialize` needs .*Received: .*{argument}=<function"):
        HighwayStack(3, rematerialize=True, **{argument: function})
    HighwayStack(3, **{argument: function})


def test_a_stack_rejects_what_single_layers_reject():
    with pytest.raises(ValueError, match="mixes the elements of its input"):
        HighwayStack(3, gate_activation="softmax")
    with pytest.raises(ValueError, match=r"Received: transform_bias='steep'"):
        HighwayStack(3, transform_bias="steep")
    with pytest.raises((ValueError, TypeError), match="units"):
        HighwayStack(3, units=3)
    with pytest.raises(ValueError, match=r"`HighwayStack` must be defined.* Received: input_shape=\(None, None\)"):
        HighwayStack(3).build((None, None))
    with pytest.raises(ValueError, match="ndim"):
        HighwayStack(3)(np.zeros(3, "float32"))
    with pytest.raises(ValueError, match="expected axis -1 of input shape to have value 3"):
        random_stack(2, (4, 3), dtype="float32")(np.zeros((4, 5), "float32"))


@pytest.mark.parametrize(("depth", "bias"), [(1, -1), (20, -2), (45, -4.5), (300, -10)])
def test_the_automatic_bias_is_that_of_the_stacks_depth(depth, bias):
    stack = HighwayStack(depth, transform_bias="auto")
    stack.build((None, 2))
    np.testing.assert_array_equal(array(stack.transform_bias), np.full((depth, 2), bias))


@pytest.mark.parametrize(("bias", "dtype"), [(-20, "mixed_float16"), (-17.5, "float16"), (20, "float32")])
def test_a_dead_gate_raises_a_warning(bias, dtype):
    compute = dtype.removeprefix("mixed_")
    with pytest.warns(UserWarning, match=f"initial transform_bias {bias} is dead in {compute}.*Choose"):
        HighwayStack(2, transform_bias=bias, dtype=dtype)


@pytest.mark.parametrize(("bias", "dtype"), [(-20, "float32"), (-20, "mixed_bfloat16"), (-16, "mixed_float16")])
def test_a_gate_that_can_learn_raises_no_warning(bias, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        HighwayStack(2, transform_bias=bias, dtype=dtype)


def test_the_first_axis_of_weights_counts_the_layers():
    stack = random_stack(4, (2, 5, 3))
    shapes = {weight.name: tuple(weight.shape) for weight in stack.weights}
    kernel, bias = (4, 3, 3), (4, 3)
    assert shapes == dict(zip(PARTS, (kernel, bias, kernel, bias), strict=True))
    assert stack.count_params() == 4 * unrolled(stack).layers[0].count_params()


@slow_on_jax
@settings(few_examples, max_examples=6)
@given(shape=st.lists(st.integers(0, 3), min_size=1, max_size=3))
def test_a_stack_takes_any_rank_and_empty_batches(shape):
    shape = (*shape, 3)
    stack = random_stack(3, shape)
    x = inputs(*shape)
    assert stack.compute_output_shape(shape) == shape
    for training in (True, False):
        assert_close(array(stack(x, training=training)), array(unrolled(stack)(x)), PRECISE)
    assert tuple(stack.gates(x).shape) == (*shape[:-1], 3, 3)


def test_all_axes_but_the_last_may_be_unknown():
    stack = random_stack(3, (None, None, 3), activation="tanh", rematerialize=True)
    symbolic = stack(keras.KerasTensor((None, None, 3), dtype=PRECISE))
    assert symbolic.shape == (None, None, 3)
    assert symbolic.dtype == PRECISE
    for shape in ((4, 5, 3), (1, 2, 3)):
        x = inputs(*shape)
        assert_close(array(stack(x, training=True)), array(unrolled(stack)(x)), PRECISE)


@pytest.mark.skipif(BACKEND != "tensorflow", reason="JAX traces again for every shape, PyTorch never")
@pytest.mark.parametrize("training", [True, False])
def test_tensorflow_traces_one_program_for_all_sizes(training):
    import tensorflow as tf

    stack = random_stack(3, (None, None, 3), activation="tanh")
    signature = [tf.TensorSpec((None, None, 3), PRECISE)]
    program = tf.function(lambda x: (stack(x, training=training), stack.gates(x)), input_signature=signature)
    for shape in ((4, 5, 3), (1, 2, 3), (0, 2, 3)):
        x = inputs(*shape)
        y, gates = program(x)
        assert_close(array(y), array(unrolled(stack)(x)), PRECISE)
        assert tuple(gates.shape) == (*shape[:-1], 3, 3)
    assert program.experimental_get_tracing_count() == 1


@pytest.mark.parametrize("shape", [(4, 3), (2, 5, 3)])
def test_gates_equal_those_of_the_layers(shape):
    stack = random_stack(4, shape, activation="tanh")
    x = between = inputs(*shape)
    gates = array(stack.gates(x))
    assert gates.shape == (*shape[:-1], 4, 3)
    for number, layer in enumerate(unrolled(stack).layers):
        assert_close(gates[..., number, :], array(layer.gates(between)), PRECISE)
        between = layer(between)


@pytest.mark.parametrize("training", [True, False])
def test_a_recorded_call_gives_gates_and_the_same_output(training):
    stack = random_stack(4, (2, 5, 3), activation="tanh", name="stack")
    x = inputs(2, 5, 3)
    with recording() as recorded:
        y = stack(x, training=training)
    assert list(recorded) == ["stack"]
    assert recorded.depths == {"stack": 4}
    assert_close(array(recorded["stack"]), array(stack.gates(x)), PRECISE)
    assert_close(array(y), array(stack(x, training=training)), PRECISE)


def test_gates_build_a_stack_that_has_no_weights_yet():
    gates = array(HighwayStack(3, transform_bias=-2.0).gates(np.zeros((5, 4), "float32")))
    np.testing.assert_allclose(gates, np.full((5, 3, 4), 1 / (1 + np.exp(2))), rtol=1e-5)


@slow_on_jax
def test_a_mask_passes_through():
    stack, pool = random_stack(3, (2, 5, 4), dtype="float32"), keras.layers.GlobalAveragePooling1D()
    x = inputs(2, 5, 4).astype("float32")
    x[1, 3:] = 0
    y = array(stack(x))
    expected = np.stack([y[0].mean(axis=0), y[1, :3].mean(axis=0)])
    np.testing.assert_allclose(array(pool(stack(keras.layers.Masking()(x)))), expected, rtol=1e-4, atol=1e-5)
    mask = np.array([[True] * 5, [True] * 3 + [False] * 2])
    np.testing.assert_array_equal(array(stack(x, mask=mask, training=True)), array(stack(x, training=True)))
    assert stack.gates(x, mask=mask).shape == (2, 5, 3, 4)


def test_a_stack_reloads_from_its_config():
    stack = HighwayStack(15, **OPTIONS)
    config = json.loads(json.dumps(stack.get_config()))
    again = HighwayStack.from_config(config)
    assert again.get_config() == stack.get_config()
    defaults = HighwayStack(2).get_config()
    assert set(OPTIONS) | {"depth"} <= set(config)
    assert [name for name in OPTIONS if config[name] == defaults[name]] == []
    assert (config["depth"], config["transform_bias"]) == (15, "auto")
    assert again.initial_transform_bias == -1.5


def test_the_config_of_a_stack_has_no_unsupported_arguments():
    assert not {"carry_gate", "batch_normalization", "dropout"} & set(HighwayStack(2).get_config())


def test_a_clone_computes_the_same():
    model = keras.Sequential([keras.Input((4,)), HighwayStack(3, rematerialize=True, kernel_regularizer="l2")])
    clone = keras.models.clone_model(model)
    assert not np.allclose(array(clone.layers[0].kernel), array(model.layers[0].kernel))
    clone.set_weights(model.get_weights())
    x = inputs(2, 4).astype("float32")
    np.testing.assert_array_equal(array(clone(x)), array(model(x)))
    assert clone.layers[0].rematerialize


def test_tracing_leaves_no_tensors_in_the_stack():
    stack = random_stack(3, (4, 3))
    stack(inputs(4, 3))
    before = {name: id(value) for name, value in vars(stack).items()}
    for size in (4, 1):
        compiled(lambda x: stack(x, training=True))(inputs(size, 3))
    assert {name: id(value) for name, value in vars(stack).items()} == before
    with recording() as recorded:
        stack(inputs(4, 3))
    assert list(recorded) == [stack.name]


@slow_on_jax
def test_every_weight_trains_in_fit():
    keras.utils.set_random_seed(0)
    stack = HighwayStack(4, activation="tanh", rematerialize=True)
    model = keras.Sequential([keras.Input((6,)), stack, keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    rng = np.random.default_rng(0)
    before = [array(weight) for weight in stack.weights]
    model.fit(rng.normal(size=(8, 6)), rng.normal(size=(8, 1)), batch_size=4, verbose=0)
    for weight, old in zip(stack.weights, before, strict=True):
        assert np.all(np.any(array(weight) != old, axis=tuple(range(1, old.ndim)))), weight.name  # of each layer
