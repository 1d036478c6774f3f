"""What a viewer shows of a picture with transparent parts, and how bright it is.

Colours are worked on as planes of [h, w]: on pixels of three numbers, ONNX Runtime takes twenty times as long.
"""

from typing import TypeAlias

import tensorflow as tf

# Of red, green and blue (ITU-R BT.601), as JPEG and Pillow have it.
LUMINANCE = (0.299, 0.587, 0.114)
WHITE = 255.0
OPAQUE = 255
# Red, green and blue, float32 [h, w] each, 0 to 255.
Planes: TypeAlias = tuple[tf.Tensor, tf.Tensor, tf.Tensor]


def shown(rgba: tf.Tensor) -> Planes:
    """The colours that a viewer shows, which lays a picture on white.

    Args:
        rgba: uint8 [h, w, 4].
    """
    *colour, alpha = tf.unstack(rgba, axis=-1)
    planes = _floats(colour)
    return tf.cond(_is_opaque(alpha), lambda: planes, lambda: _over(planes, _share(alpha), WHITE))


def grey(planes: Planes) -> tf.Tensor:
    """Brightness of red, green and blue, float32 [h, w]; of a grey picture exactly its grey."""
    red, green, blue = planes
    brightness = red * LUMINANCE[0] + green * LUMINANCE[1] + blue * LUMINANCE[2]
    # The three numbers do not sum to 1 in float32.
    return tf.where((red == green) & (red == blue), red, brightness)


def written(rgba: tf.Tensor) -> tf.Tensor:
    """The grey picture of something that was written: on white if its ink is dark, on black if it is light.

    Only transparent parts need that choice: a canvas stores its strokes and no paper.

    Args:
        rgba: uint8 [h, w, 4].

    Returns:
        float32 [h, w], 0 to 255.
    """
    *colour, alpha = tf.unstack(rgba, axis=-1)
    planes = _floats(colour)

    def on_its_paper() -> tf.Tensor:
        weight = tf.cast(alpha, tf.float32)
        brightness = tf.reduce_sum(grey(planes) * weight) / tf.maximum(tf.reduce_sum(weight), 1.0)
        return grey(_over(planes, _share(alpha), tf.where(brightness > WHITE / 2, 0.0, WHITE)))

    return tf.cond(_is_opaque(alpha), lambda: grey(planes), on_its_paper)


def _floats(colour: list[tf.Tensor]) -> Planes:
    red, green, blue = (tf.cast(plane, tf.float32) for plane in colour)
    return red, green, blue


def _share(alpha: tf.Tensor) -> tf.Tensor:
    return tf.cast(alpha, tf.float32) / 255


def _is_opaque(alpha: tf.Tensor) -> tf.Tensor:
    return tf.reduce_min(tf.cast(alpha, tf.int32)) == OPAQUE


def _over(planes: Planes, share: tf.Tensor, background: tf.Tensor | float) -> Planes:
    red, green, blue = (plane * share + background * (1 - share) for plane in planes)
    return red, green, blue
