"""Large pictures scaled down before they are looked at closely, as `serving.pictures.shrunk` does it."""

import tensorflow as tf

from serving.pictures import SIDE


def shrunk(rgba: tf.Tensor) -> tf.Tensor:
    """A large picture scaled down by a whole factor, to sides of less than `2 * SIDE`; each pixel is a mean.

    Args:
        rgba: uint8 [h, w, 4].

    Returns:
        uint8 [h, w, 4]: the same if it is small enough; colours are weighted by their alpha otherwise.
    """
    factor = tf.reduce_max(tf.shape(rgba)[:2]) // SIDE
    return tf.cond(factor < 2, lambda: rgba, lambda: _reduced(rgba, factor))


def _reduced(rgba: tf.Tensor, factor: tf.Tensor) -> tf.Tensor:
    height, width = tf.unstack(tf.shape(rgba)[:2])
    down, across = tf.minimum(factor, height), tf.minimum(factor, width)
    columns = -(-width // across)
    # The last column may be narrower.
    widths = tf.minimum(across, width - across * tf.range(columns))

    def row(number: tf.Tensor) -> tf.Tensor:
        stripe = tf.cast(rgba[number * down : (number + 1) * down], tf.float32)
        colour, alpha = stripe[..., :3], stripe[..., 3:]
        sums = tf.reduce_sum(tf.concat([colour * alpha, alpha], axis=-1), axis=0)
        sums = tf.pad(sums, ((0, columns * across - width), (0, 0)))
        sums = tf.reduce_sum(tf.reshape(sums, (columns, across, 4)), axis=1)
        area = tf.cast(widths * tf.shape(stripe)[0], tf.float32)[:, None]
        means = tf.concat([tf.math.divide_no_nan(sums[:, :3], sums[:, 3:]), sums[:, 3:] / area], axis=-1)
        return tf.cast(tf.round(means), tf.uint8)

    # Row by row: the whole picture in float32 has four times its bytes.
    rows = tf.range(-(-height // down))
    return tf.map_fn(row, rows, fn_output_signature=tf.TensorSpec((None, 4), tf.uint8))
