import keras
import numpy as np
import pytest
import tensorflow as tf

from highway_keras import from_preset
from highway_keras.initializers import patch_whitening
from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.data import preprocess
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream
from pipelines.training import whitening
from pipelines.training.whitening import first_convolution, whiten
from tests.toy_data import ToyData

PLAIN = Fitted(Preprocess(), None)


def net_of(*layers, shape=(8, 8, 1)):
    return keras.Sequential([keras.Input(shape), *layers, keras.layers.Flatten(), keras.layers.Dense(2)])


@pytest.mark.parametrize("preset", ["mnist_conv_16", "cifar10_modern", "cifar10_19_plain"])
def test_the_first_convolution_of_a_preset_comes_after_the_dropout_of_the_images(preset):
    convolution = first_convolution(from_preset(preset, width=2))
    assert convolution.name in ("entry_1", "entry_1_kernel")


@pytest.mark.parametrize(
    ("layer", "name"),
    [
        (lambda: keras.layers.Dense(3, name="first"), "first, a Dense"),
        (lambda: keras.layers.Rescaling(2.0, name="first"), "first, a Rescaling"),
        (lambda: keras.layers.DepthwiseConv2D(3, name="first"), "first, a DepthwiseConv2D"),
        (lambda: keras.layers.Conv2D(4, 3, dilation_rate=2, name="first"), "first, a Conv2D"),
    ],
)
def test_a_net_without_a_convolution_of_its_images_is_refused(layer, name):
    with pytest.raises(UserError, match=f"--model.whitened needs a net whose first layer.* is {name}"):
        first_convolution(net_of(layer(), keras.layers.Conv2D(4, 3)))


def test_the_kernel_is_a_whitening_of_the_preprocessed_images():
    examples = ToyData().load("toy", "train")
    fitted = preprocess.fit(Preprocess(scale=1 / 64, mean="pixel"), examples.images)
    net = net_of(keras.layers.Dropout(0.5), keras.layers.Conv2D(30, 3, name="first"))
    before = net.get_layer("first").kernel.numpy()
    whiten(net, examples, fitted)

    images = preprocess.apply(fitted, examples.images).numpy()
    kernel = net.get_layer("first").kernel.numpy()
    np.testing.assert_array_equal(kernel, patch_whitening(images, before))
    np.testing.assert_array_equal(kernel[..., 18:], before[..., 18:])
    assert not np.isclose(kernel[..., :18], before[..., :18]).any()


def test_some_of_many_images_are_enough(monkeypatch):
    images = np.random.default_rng(0).integers(0, 256, (100, 8, 8, 1), np.uint8)
    monkeypatch.setattr(whitening, "IMAGES", 10)
    net, other = (net_of(keras.layers.Conv2D(4, 3, name="first")) for _ in range(2))
    whiten(net, Examples(images, np.zeros(100, int)), PLAIN)
    # Evenly spaced: examples may be sorted by their class.
    whiten(other, Examples(images[::11], np.zeros(10, int)), PLAIN)
    np.testing.assert_array_equal(net.get_layer("first").kernel, other.get_layer("first").kernel)


def test_streamed_images_are_the_first_ones(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 1), np.uint8)
    records = tf.data.Dataset.from_tensor_slices((np.arange(30), np.zeros(30, int)))
    stream = Stream(records, lambda number: tf.gather(images, number), 30, tmp_path)
    net, other = (net_of(keras.layers.Conv2D(4, 3, name="first")) for _ in range(2))
    whiten(net, stream, PLAIN)
    whiten(other, Examples(images, np.zeros(30, int)), PLAIN)
    np.testing.assert_array_equal(net.get_layer("first").kernel, other.get_layer("first").kernel)


@pytest.mark.parametrize(
    ("images", "size", "message"),
    [
        (np.zeros((20, 8, 8, 1), np.uint8), 3, "must differ from place to place"),
        (np.zeros((20, 8, 8, 1), np.uint8), 9, "at least as large as the kernel"),
    ],
)
def test_images_that_cannot_be_whitened_are_refused(images, size, message):
    net = net_of(keras.layers.Conv2D(4, size, padding="same", name="first"))
    with pytest.raises(UserError, match=f"--model.whitened cannot start the kernel of first: .*{message}"):
        whiten(net, Examples(images, np.zeros(20, int)), PLAIN)
