"""A photograph of any size as a small picture: the largest centred part of the right shape, as a viewer shows it."""

import tensorflow as tf

from pipelines.data.images.cells import smooth
from pipelines.data.images.shown import grey, shown


def natural(rgba: tf.Tensor, height: int, width: int, channels: int) -> tf.Tensor:
    """Cuts the middle out and scales it.

    What is transparent shows white paper, as in a viewer. Of a picture that is too wide the sides are cut off, of one
    that is too high top and bottom. Scaling down averages, scaling up interpolates; a picture of the right size stays
    as it is.

    Args:
        rgba: uint8 [h, w, 4].
        height: of the result.
        width: of the result.
        channels: 3, or 1 for the brightness alone.

    Returns:
        uint8 [height, width, channels].
    """
    planes = shown(rgba)
    stacked = grey(planes)[None] if channels == 1 else tf.stack(planes)
    down, across = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(rgba)[:2]))
    cell = tf.minimum(down / height, across / width)
    rows = smooth((down - cell * height) / 2, cell, height, tf.shape(rgba)[0])
    columns = smooth((across - cell * width) / 2, cell, width, tf.shape(rgba)[1])
    small = rows @ stacked @ tf.transpose(columns)
    return tf.cast(tf.round(tf.clip_by_value(tf.transpose(small, (1, 2, 0)), 0, 255)), tf.uint8)
