import keras
import numpy as np
import pytest
import tensorflow as tf

import highway_keras
from highway_keras import HighwayStack
from highway_keras.analysis.gate_values import means_of_examples
from highway_keras.layers.recording import recording
from pipelines.export import stack
from pipelines.export.stack import InferenceStack, for_inference
from tests.finished_run import scramble

DEPTH = 7


@pytest.fixture(params=["unrolled", "loop"])
def form(request, monkeypatch):
    """Both forms of a stack of `DEPTH` layers."""
    monkeypatch.setattr(stack, "UNROLLED", DEPTH if request.param == "unrolled" else DEPTH - 1)
    return request.param


def net(shape=(6,), **arguments):
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    x = HighwayStack(DEPTH, name="deep", **arguments)(inputs)
    model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Flatten()(x)))
    scramble(model)
    return model


@keras.saving.register_keras_serializable("tests")
def wave(x):
    """An activation with a tensor of its own."""
    return keras.ops.sin(x) * keras.ops.convert_to_tensor(0.7)


@keras.saving.register_keras_serializable("tests")
def over_steps(x):
    """An activation that mixes the steps of a sequence."""
    return keras.ops.softmax(x, axis=1)


def images(*shape):
    return np.random.default_rng(1).normal(size=shape).astype("float32")


@pytest.mark.parametrize(
    "arguments",
    [
        {"activation": "tanh"},
        {"activation": "relu", "gate_activation": "hard_sigmoid"},
        {"activation": "gelu"},
        {"activation": wave},
        {"rematerialize": True},
        {"transform_bias": "auto"},
    ],
)
def test_the_form_computes_the_same_as_the_stack(form, arguments):
    model = net(**arguments)
    found = for_inference(model)
    assert isinstance(found.get_layer("deep"), InferenceStack)
    np.testing.assert_allclose(found(images(5, 6)), model(images(5, 6), training=False), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("activation", ["softmax", over_steps])
def test_an_activation_that_mixes_elements_sees_the_shape_of_the_inputs(form, activation):
    model = net((4, 6), activation=activation)
    expected = model(images(5, 4, 6), training=False)
    np.testing.assert_allclose(for_inference(model)(images(5, 4, 6)), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("shape", [(4, 6), (2, 3, 6), (None, 6)])
def test_inputs_of_any_rank(form, shape):
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, HighwayStack(DEPTH)(inputs))
    scramble(model)
    given = images(2, *(5 if size is None else size for size in shape))
    predict = tf.function(for_inference(model), input_signature=[tf.TensorSpec((None, *shape), tf.float32)])
    np.testing.assert_allclose(predict(given), model(given), rtol=1e-5, atol=1e-5)


def operations(function):
    """Returns the types of all operations, including those inside loops."""
    graph = function.get_concrete_function().graph.as_graph_def()
    return [node.op for nodes in (graph.node, *(inner.node_def for inner in graph.library.function)) for node in nodes]


@pytest.mark.parametrize("shape", [(6,), (4, 6), (None, 6)])
def test_gates_are_recorded_as_means(form, shape):
    keras.utils.set_random_seed(0)
    inputs = keras.Input(shape)
    model = keras.Model(inputs, HighwayStack(DEPTH, name="deep")(inputs))
    scramble(model)
    given = images(2, *(5 if size is None else size for size in shape))
    net = for_inference(model)

    @tf.function(input_signature=[tf.TensorSpec((None, *shape), tf.float32)])
    def means(x):
        with recording() as recorded:
            net(x)
        return means_of_examples(recorded)["deep"]

    expected = model.get_layer("deep").gates(given)
    axes = tuple(axis for axis in range(1, len(expected.shape)) if axis != len(expected.shape) - 2)
    np.testing.assert_allclose(means(given), np.mean(expected, axis=axes), rtol=1e-5, atol=1e-6)


def test_short_stacks_are_unrolled_and_long_ones_are_a_loop(form):
    traced = tf.function(for_inference(net()), input_signature=[tf.TensorSpec((None, 6), tf.float32)])
    found = operations(traced)
    # Two products per layer, and one in the classifier.
    assert found.count("MatMul") == (2 * DEPTH + 1 if form == "unrolled" else 3)
    assert found.count("StatelessWhile") == (0 if form == "unrolled" else 1)
    # No operation that only a gradient would need.
    assert not {op for op in found if op.startswith("TensorList")}


def test_a_stack_in_nested_models(form):
    inner = net()
    inputs = keras.Input((6,))
    model = keras.Sequential([inputs, keras.layers.Dense(6), inner, keras.layers.Activation("relu")])
    scramble(model)
    found = for_inference(model)
    assert isinstance(found.layers[1].get_layer("deep"), InferenceStack)
    np.testing.assert_allclose(found(images(5, 6)), model(images(5, 6), training=False), rtol=1e-5, atol=1e-5)


def test_a_stack_that_is_called_twice_shares_its_weights(form):
    inputs = keras.Input((6,))
    deep = HighwayStack(DEPTH)
    model = keras.Model(inputs, deep(deep(inputs)))
    scramble(model)
    found = for_inference(model)
    assert found.count_params() == model.count_params()
    np.testing.assert_allclose(found(images(5, 6)), model(images(5, 6), training=False), rtol=1e-5, atol=1e-5)


def test_the_model_and_nets_without_stacks_are_unchanged():
    model = net()
    before = model.get_config()
    copy = for_inference(model)
    copy.set_weights([0 * weight for weight in copy.get_weights()])
    assert model.get_config() == before
    assert all(weight.any() for weight in model.get_weights())

    keras.utils.set_random_seed(0)
    other = highway_keras.from_preset("mnist_conv_16", width=4)
    given = images(2, 28, 28, 1)
    np.testing.assert_array_equal(for_inference(other)(given), other(given, training=False))
