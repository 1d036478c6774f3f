import keras
import numpy as np
import pytest
import tensorflow as tf

import highway_keras
from pipelines.core.config import Preprocess
from pipelines.data.images.conversion import converter
from pipelines.data.preprocess import Fitted
from pipelines.export.graph import in_float32, map_shapes, prediction, prediction_of_files, without_maps
from serving.image_files import SIDE
from tests.finished_run import scramble, tiny_net

FITTED = Fitted(Preprocess(), None)
LABELS = tuple("abcdefghij")


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


def test_the_trained_net_is_unchanged():
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


def test_the_copy_computes_the_same_as_a_net_built_in_float32():
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


def images(count):
    return np.random.default_rng(0).integers(0, 256, (count, 28, 28, 1), dtype="uint8")


def test_prediction_names_its_input_and_outputs():
    traced = prediction(tiny_net(), FITTED, LABELS, gates=True).get_concrete_function()
    (image,) = traced.structured_input_signature[0]
    assert (image.name, image.dtype, image.shape.as_list()) == ("image", tf.uint8, [None, 28, 28, 1])
    outputs = {name: (spec.dtype, spec.shape.as_list()) for name, spec in traced.structured_outputs.items()}
    assert outputs == {
        "probabilities": (tf.float32, [None, 10]),
        "class_id": (tf.int64, [None]),
        "label": (tf.string, [None]),
        "gate_means": (tf.float32, [None, 2]),
        "gate_maps": (tf.float32, [None, 7 * 7]),
    }


@pytest.mark.parametrize("count", [1, 5])
def test_prediction_is_softmax_of_the_net_without_dropout(count):
    model = tiny_net()
    logits = np.asarray(model(images(count) / np.float32(255), training=False), "float64")
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    found = prediction(model, FITTED, LABELS)(images(count))
    assert set(found) == {"probabilities", "class_id", "label"}
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    np.testing.assert_array_equal(found["class_id"], expected.argmax(-1))
    assert [label.decode() for label in found["label"].numpy()] == [LABELS[index] for index in expected.argmax(-1)]


@pytest.mark.parametrize(
    ("preset", "changes", "maps"),
    [("mnist_conv_16", {"width": 4}, 8), ("mnist_dense_50", {"depth": 7}, 0)],
)
def test_gates_are_those_of_every_layer(preset, changes, maps):
    keras.utils.set_random_seed(0)
    model = highway_keras.from_preset(preset, **changes)
    scramble(model)
    given = images(5)
    expected = highway_keras.gates(model, given / np.float32(255))
    predict = prediction(model, FITTED, LABELS, gates=True)
    found = predict(given)
    means = np.stack([gate.reshape(5, -1).mean(axis=1) for gate in expected.values()], axis=1)
    assert means.shape == found["gate_means"].shape
    np.testing.assert_allclose(found["gate_means"], means, atol=1e-6)
    assert np.ptp(means) > 0.01
    shapes = map_shapes(model)
    assert len(shapes) == maps
    assert ("gate_maps" in found) == bool(maps)
    if maps:
        assert [(one.layer, one.height, one.width) for one in shapes] == [
            (name, *gate.shape[1:3]) for name, gate in expected.items()
        ]
        averaged = np.concatenate([gate.mean(-1).reshape(5, -1) for gate in expected.values()], axis=1)
        np.testing.assert_allclose(found["gate_maps"], averaged, atol=1e-6)
        assert set(without_maps(predict)(given)) == set(found) - {"gate_maps"}


@pytest.fixture(scope="module")
def of_images_and_files():
    """A prediction, the same one of files, and the conversion of their images; traced once."""
    predict, convert = prediction(tiny_net(), FITTED, LABELS), converter("digit", (28, 28, 1))
    return predict, prediction_of_files(predict, convert, SIDE), convert


@pytest.mark.parametrize("count", [1, 3])
def test_files_are_decoded_and_shown_to_the_same_net(of_images_and_files, count):
    predict, of_files, convert = of_images_and_files
    large = [255 - np.kron(image[..., 0], np.ones((3, 3), np.uint8)) for image in images(count)]
    files = [tf.io.encode_png(one[..., None]).numpy() for one in large]
    seen = [convert(np.dstack([one] * 3 + [np.full_like(one, 255)]))["image"] for one in large]
    found = of_files(tf.constant(files, tf.string, (count,)))
    expected = predict(np.array(seen, np.uint8).reshape(-1, 28, 28, 1))
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6)
    assert found["probabilities"].shape == (count, 10)


def test_a_file_that_is_not_an_image_fails(of_images_and_files):
    _, of_files, _ = of_images_and_files
    with pytest.raises(tf.errors.InvalidArgumentError):
        of_files(tf.constant([b"hello"]))


def test_batch_normalization_is_folded_into_the_kernels():
    model = highway_keras.from_preset("mnist_conv_32_modern", width=4)
    scramble(model)
    for variable in model.non_trainable_variables:
        if variable.path.endswith("moving_variance"):
            variable.assign(np.linspace(0.5, 2, variable.shape[0]))
    predict = prediction(model, FITTED, LABELS)
    operations = {one.type for one in predict.get_concrete_function().graph.get_operations()}
    assert "Conv2D" in operations
    assert not {"Rsqrt", "FusedBatchNormV3", "Sqrt"} & operations
    given = images(3)
    expected = tf.nn.softmax(model(given / np.float32(255), training=False))
    np.testing.assert_allclose(predict(given)["probabilities"], expected, atol=1e-5)
    assert np.ptp(expected) > 0.05


def test_independent_probabilities_are_sigmoids():
    model = tiny_net()
    logits = np.asarray(model(images(5) / np.float32(255), training=False), "float64")
    found = prediction(model, FITTED, LABELS, multi_label=True)(images(5))
    np.testing.assert_allclose(found["probabilities"], 1 / (1 + np.exp(-logits)), atol=1e-6)
    np.testing.assert_array_equal(found["class_id"], logits.argmax(-1))
