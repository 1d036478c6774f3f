"""The first convolution of a net, started as a whitening of the training images."""

import keras
import numpy as np
import tensorflow as tf

from highway_keras.initializers import patch_whitening
from pipelines.core.errors import UserError
from pipelines.data import preprocess
from pipelines.data.preprocess import Fitted
from pipelines.data.sources import Examples
from pipelines.data.stream import Stream

# Images that patches are taken from, and their pixels in all: fewer of large images.
IMAGES, PIXELS = 5000, 2**24


def first_convolution(net: keras.Model) -> keras.layers.Conv2D:
    """Returns the convolution that a net applies to its images.

    Args:
        net: the net.

    Raises:
        UserError: there is none: the first layer, but for dropout, is another one.
    """
    first = next(layer for layer in net.layers if not isinstance(layer, keras.layers.InputLayer | keras.layers.Dropout))
    plain = isinstance(first, keras.layers.Conv2D) and first.data_format == "channels_last" and first.groups == 1
    if not plain or first.dilation_rate != (1, 1):
        raise UserError(
            "--model.whitened needs a net whose first layer, dropout aside, is a Conv2D with one group and no "
            f"dilation. That of {net.name} is {first.name}, a {type(first).__name__}. Leave it out, or choose a "
            "convolutional net."
        )
    return first


def whiten(net: keras.Model, examples: Examples | Stream, fitted: Fitted) -> None:
    """Starts the first convolution of a net as a whitening of the training images.

    It depends on the examples alone. In several processes, the others get the weights of the first one.

    Args:
        net: the net, with initial weights.
        examples: the training examples, without held-out ones.
        fitted: their preprocessing.

    Raises:
        UserError: see `first_convolution`; or the kernel is larger than the images, or all of them are of one colour.
    """
    convolution = first_convolution(net)
    images = preprocess.apply(fitted, tf.constant(_chosen(examples))).numpy()
    try:
        kernel = patch_whitening(images, convolution.kernel.numpy())
    except ValueError as error:
        raise UserError(f"--model.whitened cannot start the kernel of {convolution.name}: {error}") from error
    convolution.kernel.assign(kernel)


def _chosen(examples: Examples | Stream) -> np.ndarray:
    """Returns some of the images, uint8 [n, h, w, c]: evenly spaced, because examples may be sorted."""
    if isinstance(examples, Stream):
        # Shuffled when they were written.
        _, height, width, _ = examples.first(1)[0].shape
        return examples.first(_count(height, width, len(examples)))[0]
    _, height, width, _ = examples.images.shape
    return examples.images[np.linspace(0, len(examples) - 1, _count(height, width, len(examples))).astype(int)]


def _count(height: int, width: int, most: int) -> int:
    return min(most, IMAGES, max(1, PIXELS // (height * width)))
