"""The fused gate and blend equals the op-by-op computation, and is used only where it saves time."""

import keras
import numpy as np
import pytest

from highway_keras import ConvHighway
from highway_keras.layers import fused_blend, normalization, recording
from highway_keras.layers.equations import blend
from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import BACKEND, array, scramble, weights_of

if BACKEND == "tensorflow":
    import tensorflow as tf

pytestmark = pytest.mark.skipif(BACKEND != "tensorflow", reason="other backends fuse by themselves")
SHAPES = {"sequence": (4, 8, 3), "image": (4, 6, 5, 3), "volume": (2, 4, 3, 4, 3), "wide": (4, 6, 5, 16)}
BITS = {"mixed_float16": 11, "mixed_bfloat16": 8}


@pytest.fixture
def calls(monkeypatch):
    """Records the calls of `fused_blend`."""
    made = []
    for name in ("fused_blend", "normalized_fused_blend"):
        blended = getattr(fused_blend, name)
        monkeypatch.setattr(fused_blend, name, lambda *arguments, call=blended: made.append(1) or call(*arguments))
    return made


def layer_for(shape, *, activation="relu", dtype="mixed_bfloat16", **arguments):
    layer = ConvHighway(3, activation=activation, transform_bias=-1.0, dtype=dtype, **arguments)
    layer.build((None, *shape[1:]))
    return scramble(layer)


def feature_maps(shape, dtype="mixed_bfloat16", seed=1):
    # The input is representable in the narrow format, so that its rounding adds no error.
    x = np.random.default_rng(seed).normal(size=shape).astype("float32")
    return array(tf.cast(x, dtype.removeprefix("mixed_"))).astype("float32")


def run_traced(layer, x, upstream, **options):
    """Returns y and the gradients of sum(y * upstream) by name, from a traced function as in `fit`."""
    names = ["x", *[variable.name for variable in layer.trainable_variables]]

    @tf.function
    def step(x):
        x = tf.cast(x, layer.compute_dtype)
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = layer(x, training=True, **options)
            loss = tf.reduce_sum(tf.cast(y, "float32") * upstream)
        return y, tape.gradient(loss, [x, *[variable.value for variable in layer.trainable_variables]])

    y, values = step(tf.constant(x))
    return array(y), {name: array(value) for name, value in zip(names, values, strict=True)}


def run_op_by_op(layer, x, upstream, **options):
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(fused_blend, "is_faster", lambda *_: False)
        patched.setattr(normalization, "is_compiled", lambda _: False)
        return run_traced(layer, x, upstream, **options)


def assert_near(found, expected, bits, name=""):
    """Asserts equality up to rounding to `bits` bits, relative to the largest value."""
    error = np.abs(found - expected).max()
    assert error <= 2.0**-bits * np.abs(expected).max(), f"{name}: {error} of {np.abs(expected).max()}"


@pytest.mark.parametrize(
    ("kind", "policy"), [("sequence", "mixed_float16"), ("image", "mixed_bfloat16"), ("volume", "mixed_float16")]
)
def test_the_fused_blend_equals_the_op_by_op_computation(calls, kind, policy):
    shape = SHAPES[kind]
    layer = layer_for(shape, dtype=policy)
    x, upstream = feature_maps(shape, policy), feature_maps(shape, policy, seed=2)
    y, found = run_traced(layer, x, upstream)
    assert calls
    expected_y, expected = run_op_by_op(layer, x, upstream)
    assert_near(y, expected_y, BITS[policy])
    for name, gradient in expected.items():
        assert_near(found[name], gradient, BITS[policy] - 2, name)


@pytest.mark.parametrize("policy", BITS)
@pytest.mark.parametrize("normalized", [False, True])
def test_bias_gradients_of_many_positions_are_added_in_float32(calls, policy, normalized):
    shape = (16, 32, 32, 3)
    layer = layer_for(shape, dtype=policy, batch_normalization=normalized)
    # Gradients of one sign, which add up to large numbers.
    x, upstream = feature_maps(shape, policy), np.abs(feature_maps(shape, policy, seed=2)) / 1024
    _, found = run_traced(layer, x, upstream)
    assert calls
    _, expected = run_op_by_op(layer, x, upstream)
    for name in {"bias", "transform_bias"} & {*expected}:
        assert_near(found[name], expected[name], BITS[policy] - 2, name)


@pytest.mark.parametrize(
    ("activation", "gate_activation"),
    [
        ("linear", "sigmoid"),
        ("relu", "sigmoid"),
        ("leaky_relu", "hard_sigmoid"),
        ("elu", "sigmoid"),
        ("tanh", "hard_sigmoid"),
        ("sigmoid", "sigmoid"),
        ("hard_sigmoid", "hard_sigmoid"),
    ],
)
def test_the_fused_blend_equals_the_papers_equation(calls, activation, gate_activation):
    layer = layer_for((3, 4, 4, 2), activation=activation, gate_activation=gate_activation)
    x, upstream = feature_maps((3, 4, 4, 2)), feature_maps((3, 4, 4, 2), seed=2)
    functions = {
        "activation": lambda z: array(layer.activation(tf.constant(z))),
        "gate": lambda z: array(layer.gate_activation(tf.constant(z))),
    }
    y, found = run_traced(layer, x, upstream)
    assert calls
    x, weights = x.astype("float64"), weights_of(layer)
    assert_near(y, reference.forward(x, weights, **functions), 6)
    assert_near(found["x"], central_difference(x, weights, upstream, functions), 5)


@pytest.mark.parametrize(
    "arguments",
    [{"dilation_rate": 2}, {"groups": 3}, {"padding": "causal"}, {"use_bias": False}],
    ids=str,
)
def test_the_fused_blend_takes_every_convolution(calls, arguments):
    shape = SHAPES["sequence"]
    layer = layer_for(shape, **arguments)
    x, upstream = feature_maps(shape), feature_maps(shape, seed=2)
    y, found = run_traced(layer, x, upstream)
    assert calls
    expected_y, expected = run_op_by_op(layer, x, upstream)
    assert found.keys() == expected.keys()
    assert_near(y, expected_y, 8)
    for name, gradient in expected.items():
        assert_near(found[name], gradient, 6, name)


def central_difference(x, weights, upstream, functions, step=1e-5):
    def total(moved):
        return np.sum(reference.forward(moved, weights, **functions) * upstream)

    slopes = np.zeros(x.shape)
    for index in np.ndindex(x.shape):
        move = np.zeros(x.shape)
        move[index] = step
        slopes[index] = (total(x + move) - total(x - move)) / (2 * step)
    return slopes


def test_the_blend_is_rounded_once(calls):
    layer = ConvHighway(1, activation="linear", transform_bias=-1.0, dtype="mixed_bfloat16")
    layer.build((None, 500, 1))
    layer.kernel.assign([[[1.0]]])  # makes the products exact
    layer.transform_kernel.assign([[[0.5]]])
    layer.bias.assign([1.0003])  # not representable in the narrow format
    x = feature_maps((1, 500, 1))
    y, _ = run_traced(layer, x, np.ones_like(x))
    assert calls
    exact = reference.forward(x.astype("float64"), weights_of(layer), activation=lambda z: z)
    spacing = 2.0 ** (np.floor(np.log2(np.abs(exact))) + 1 - 8)
    assert np.all(np.abs(y - exact) <= 0.51 * spacing)


def test_masked_positions_count_as_zero(calls):
    layer = layer_for((4, 8, 3))
    x, upstream, mask = feature_maps((4, 8, 3)), feature_maps((4, 8, 3), seed=2), np.arange(8) < [[8], [5], [3], [1]]
    y, found = run_traced(layer, x, upstream, mask=tf.constant(mask))
    assert calls
    expected_y, expected = run_op_by_op(layer, x, upstream, mask=tf.constant(mask))
    assert_near(y, expected_y, 8)
    assert_near(found["x"], expected["x"], 6)


@pytest.mark.parametrize(
    "arguments",
    [
        {"dtype": "float32"},
        {"dtype": "float64"},
        {"carry_gate": "separate"},
        {"dropout": 0.1},
        {"activation": "gelu"},
    ],
    ids=str,
)
def test_unsupported_layers_run_op_by_op(calls, arguments):
    shape = (4, 6, 6, 3)
    layer = layer_for(shape, **arguments)
    run_traced(layer, feature_maps(shape), feature_maps(shape))
    assert not calls


def test_eager_layers_run_op_by_op(calls):
    layer_for((4, 8, 3))(feature_maps((4, 8, 3)), training=True)
    assert not calls


def test_maps_of_unknown_size_run_op_by_op(calls):
    layer = layer_for((4, 8, 3))
    traced = tf.function(lambda x: layer(x, training=True), input_signature=[tf.TensorSpec((None, None, 3))])
    traced(feature_maps((4, 8, 3)))
    assert not calls


def test_gates_are_recorded_in_training(calls):
    layer = layer_for((4, 8, 3))
    x = feature_maps((4, 8, 3))

    @tf.function
    def gates(x):
        with recording() as recorded:
            layer(x, training=True)
        return recorded[layer.name]

    np.testing.assert_allclose(array(gates(x)), array(layer.gates(x)), rtol=1e-6)
    assert not calls


def test_inference_needs_no_xla():
    layer = layer_for((4, 6, 6, 3))
    for training, expected in ((False, False), (True, True)):
        traced = tf.function(lambda x, training=training: layer(x, training=training))
        graph = traced.get_concrete_function(tf.TensorSpec((None, 6, 6, 3))).graph.as_graph_def()
        assert any("_XlaMustCompile" in function.attr for function in graph.library.function) is expected


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_model_with_the_fused_blend_trains_in_fit(calls, jit_compile):
    # The last batch is smaller, and XLA may compile the whole net.
    keras.utils.set_random_seed(0)
    inputs = keras.Input((6, 6, 2))
    x = layer_for((None, 6, 6, 2))(inputs)
    x = keras.layers.GlobalAveragePooling2D(dtype="float32")(x)
    model = keras.Model(inputs, keras.layers.Dense(1, dtype="float32")(x))
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=jit_compile)
    images = feature_maps((20, 6, 6, 2))
    history = model.fit(images, images.mean((1, 2, 3)), batch_size=8, epochs=8, verbose=0)
    assert calls
    assert history.history["loss"][-1] < 0.5 * history.history["loss"][0]


@pytest.mark.parametrize(
    ("kind", "policy", "activation"),
    [
        ("sequence", "mixed_float16", "tanh"),
        ("image", "mixed_bfloat16", "relu"),
        ("volume", "mixed_float16", "relu"),
        ("wide", "mixed_bfloat16", "relu"),
        ("wide", "mixed_float16", "tanh"),
    ],
)
def test_normalization_in_the_fused_pass_equals_the_op_by_op_computation(calls, kind, policy, activation):
    shape = SHAPES[kind]
    layer = layer_for(shape, dtype=policy, activation=activation, batch_normalization=True)
    running = [layer.normalization.moving_mean, layer.normalization.moving_variance]
    for variable in running:
        variable.assign(np.linspace(0.5, 2, shape[-1]))
    before = [array(variable) for variable in running]
    x, upstream = feature_maps(shape, policy), feature_maps(shape, policy, seed=2)
    y, found = run_traced(layer, x, upstream)
    assert calls
    after = [array(variable) for variable in running]
    for variable, value in zip(running, before, strict=True):
        variable.assign(value)
    expected_y, expected = run_op_by_op(layer, x, upstream)
    assert_near(y, expected_y, BITS[policy])
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        assert_near(found[name], gradient, BITS[policy] - 2, name)
    for one, other, old in zip(after, map(array, running), before, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert not np.allclose(one, old)


def test_the_gradient_through_the_statistics_equals_differences_in_float64(calls):
    shape = (3, 4, 4, 2)
    layer = layer_for(shape, activation="tanh", batch_normalization=True)
    x, upstream = feature_maps(shape), feature_maps(shape, seed=2)
    _, found = run_traced(layer, x, upstream)
    assert calls
    exact = ConvHighway.from_config(layer.get_config() | {"dtype": "float64"})
    exact.build((None, *shape[1:]))
    exact.set_weights(layer.get_weights())

    def total(moved):
        return np.sum(array(exact(tf.constant(moved), training=True)) * upstream)

    slopes = np.zeros(shape)
    for index in np.ndindex(*shape):
        move = np.zeros(shape)
        move[index] = 1e-5
        slopes[index] = (total(x + move) - total(x - move)) / 2e-5
    assert_near(found["x"], slopes, 5)


@pytest.mark.parametrize("channels", [3, normalization.VECTOR])
def test_the_gradient_of_a_gradient_passes_through_the_statistics(channels):
    rng = np.random.default_rng(0)
    block, gate, x, upstream = (tf.constant(rng.normal(size=(2, 3, 3, channels)), "float32") for _ in range(4))
    gain, offset, bias = (tf.constant(rng.normal(size=channels), "float32") for _ in range(3))
    activations = fused_blend.Activations(keras.activations.tanh, keras.activations.sigmoid)

    def fused(block):
        return fused_blend.normalized_fused_blend((block, gate), (gain, offset), bias, x, (activations, 1e-3))[0]

    def op_by_op(block):
        moments = keras.ops.moments(block, (0, 1, 2))
        normalized = keras.ops.batch_normalization(block, *moments, -1, offset=offset, scale=gain, epsilon=1e-3)
        return blend(tf.tanh(normalized), x, tf.sigmoid(gate + bias), None)

    @tf.function(autograph=False)
    def slopes_of_penalty(function, block):
        """Returns the gradient of a penalty on the gradient of a loss."""
        with tf.GradientTape() as outer:
            outer.watch(block)
            with tf.GradientTape() as inner:
                inner.watch(block)
                loss = tf.reduce_sum(function(block) * upstream)
            penalty = tf.reduce_sum(inner.gradient(loss, block) ** 2)
        return outer.gradient(penalty, block)

    expected = array(slopes_of_penalty(op_by_op, block))
    np.testing.assert_allclose(array(slopes_of_penalty(fused, block)), expected, rtol=1e-4, atol=1e-3)


def test_masked_or_frozen_normalization_runs_op_by_op(calls):
    layer = layer_for((4, 8, 3), batch_normalization=True)
    x, mask = feature_maps((4, 8, 3)), tf.constant(np.arange(8) < [[8], [5], [3], [1]])
    run_traced(layer, x, x, mask=mask)
    layer.normalization.trainable = False
    run_traced(layer, x, x)
    assert not calls
