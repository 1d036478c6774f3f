import keras
import numpy as np
import pytest
import tensorflow as tf

import highway_keras
from pipelines.config import Preprocess
from pipelines.data.preprocess import Fitted
from pipelines.exporting.graph import in_float32, prediction
from tests.finished_run import scramble, tiny_net

FITTED = Fitted(Preprocess(), None)


@pytest.fixture(params=["float32", "mixed_bfloat16", "mixed_float16", "bfloat16"])
def policy(request):
    keras.config.set_dtype_policy(request.param)
    yield request.param
    keras.config.set_dtype_policy("float32")


def types(model):
    return {layer.compute_dtype for layer in model.layers} | {layer.variable_dtype for layer in model.layers}


def test_every_layer_is_float32_with_the_same_weights(policy):
    trained = tiny_net()
    copy = in_float32(trained)
    assert types(copy) == {"float32"}
    for mine, theirs in zip(copy.get_weights(), trained.get_weights(), strict=True):
        np.testing.assert_array_equal(mine, np.asarray(theirs, "float32"))
    assert keras.config.dtype_policy().name == policy


def test_the_trained_net_stays_as_it_is():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        trained = tiny_net()
    finally:
        keras.config.set_dtype_policy("float32")
    before = trained.get_config()
    copy = in_float32(trained)
    copy.set_weights([0 * weight for weight in copy.get_weights()])
    assert trained.get_config() == before
    assert "bfloat16" in types(trained)
    assert any(weight.any() for weight in trained.get_weights())


def test_the_copy_computes_what_a_net_built_in_float32_computes():
    def net():
        keras.utils.set_random_seed(0)
        built = highway_keras.from_preset("mnist_conv_16")
        scramble(built)
        return built

    expected = net()
    keras.config.set_dtype_policy("mixed_float16")
    try:
        trained = net()
    finally:
        keras.config.set_dtype_policy("float32")
    images = np.random.default_rng(0).random((3, 28, 28, 1), dtype="float32")
    copy = in_float32(trained)(images, training=False)
    np.testing.assert_array_equal(copy, expected(images, training=False))
    assert np.abs(trained(images, training=False) - copy).max() > 0


def test_prediction_names_its_input_and_outputs():
    traced = prediction(tiny_net(), FITTED).get_concrete_function()
    (image,) = traced.structured_input_signature[0]
    assert (image.name, image.dtype, image.shape.as_list()) == ("image", tf.uint8, [None, 28, 28, 1])
    outputs = {name: (spec.dtype, spec.shape.as_list()) for name, spec in traced.structured_outputs.items()}
    assert outputs == {"probabilities": (tf.float32, [None, 10]), "class_id": (tf.int64, [None])}


def test_prediction_is_softmax_of_the_net_without_dropout():
    model = tiny_net()
    images = np.random.default_rng(0).integers(0, 256, (5, 28, 28, 1), dtype="uint8")
    logits = np.asarray(model(images / np.float32(255), training=False), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = prediction(model, FITTED)(images)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(found["class_id"], expected.argmax(-1))
