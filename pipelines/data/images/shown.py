"""What a viewer shows of a picture with transparent parts, and how bright it is."""

import tensorflow as tf

# Of red, green and blue (ITU-R BT.601), as JPEG and Pillow have it.
LUMINANCE = (0.299, 0.587, 0.114)
WHITE = 255.0


def over(rgba: tf.Tensor, background: tf.Tensor | float) -> tf.Tensor:
    """Lays a picture on a background of one grey.

    Args:
        rgba: uint8 [h, w, 4].
        background: 0 to 255.

    Returns:
        float32 [h, w, 3], 0 to 255.
    """
    colour, alpha = tf.cast(rgba[..., :3], tf.float32), tf.cast(rgba[..., 3:], tf.float32) / 255
    return colour * alpha + background * (1 - alpha)


def grey(colour: tf.Tensor) -> tf.Tensor:
    """Brightness of red, green and blue, float32 [..., 3], as float32 [...]; of a grey picture exactly its grey."""
    brightness = tf.reduce_sum(colour * LUMINANCE, axis=-1)
    # The three numbers do not sum to 1 in float32.
    same = tf.reduce_all(colour == colour[..., :1], axis=-1)
    return tf.where(same, colour[..., 0], brightness)


def written(rgba: tf.Tensor) -> tf.Tensor:
    """The grey picture of something that was written: on white if its ink is dark, on black if it is light.

    Only transparent parts need that choice: a canvas stores its strokes and no paper.

    Args:
        rgba: uint8 [h, w, 4].

    Returns:
        float32 [h, w], 0 to 255.
    """
    alpha = tf.cast(rgba[..., 3], tf.float32)
    brightness = tf.reduce_sum(grey(tf.cast(rgba[..., :3], tf.float32)) * alpha) / tf.maximum(tf.reduce_sum(alpha), 1.0)
    return grey(over(rgba, tf.where(brightness > WHITE / 2, 0.0, WHITE)))
