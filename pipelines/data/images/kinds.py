"""Which pictures a model is for, and the function that makes its input of any of them."""

from functools import cache

import tensorflow as tf

from pipelines.core.errors import UserError
from pipelines.data.images.digit import SIDE, digit
from pipelines.data.images.natural import natural
from pipelines.data.images.shown import written
from serving.manifest import INPUT, RGBA, PictureKind

# Data sets of digits; a folder or data set of another name has natural pictures, unless the user says otherwise.
DIGITS = ("mnist", "mnist_5k")


def kind_of(data: str) -> PictureKind:
    """What the pictures of a data set are, by its TFDS name."""
    return "digit" if data in DIGITS else "natural"


@cache
def converter(kind: PictureKind, shape: tuple[int, ...]) -> tf.types.experimental.PolymorphicFunction:
    """The function from a picture of any size to what a net takes.

    Args:
        kind: "digit" or "natural".
        shape: height, width and channels of the net's input.

    Returns:
        A `tf.function` from `rgba`, uint8 [h, w, 4], to the dict of `image`, uint8 of `shape`.

    Raises:
        UserError: a net for digits does not take 28 x 28 grey pixels.

    Example:
        converter("digit", (28, 28, 1))(rgba)["image"]
    """
    if kind == "digit" and shape != (SIDE, SIDE, 1):
        raise UserError(
            f"pictures of digits become {SIDE} x {SIDE} grey pixels, and this net takes images of {shape}. "
            "Export it with --pictures natural."
        )

    @tf.function(input_signature=[tf.TensorSpec((None, None, 4), tf.uint8, name=RGBA)])
    def convert(rgba: tf.Tensor) -> dict[str, tf.Tensor]:
        image = _digit(rgba) if kind == "digit" else natural(rgba, *shape)
        return {INPUT: tf.ensure_shape(image, shape)}

    return convert


def _digit(rgba: tf.Tensor) -> tf.Tensor:
    return tf.cast(digit(written(rgba)), tf.uint8)[..., None]
