"""Weights that resample a row of pixels onto a grid of cells."""

import math

import tensorflow as tf

# Lobes of Lanczos's filter on each side.
LOBES = 3


def coverage(start: tf.Tensor, cell: tf.Tensor, count: int, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes weights that average a row of pixels over each cell of a grid.

    Args:
        start: start of the first cell, in pixels; may be outside the row.
        cell: length of a cell in pixels, any positive number.
        count: number of cells.
        size: number of pixels in the row.

    Returns:
        Weights, float32 [count, size], which sum to 1 per cell, or to 0 for a cell outside the row; and whether each
        cell overlaps the row, float32 [count], 0 or 1.

    Example:
        rows, _ = coverage(0.0, 20.0, 28, 560)
        small = rows @ image @ tf.transpose(rows)  # [28, 28] from [560, 560]
    """
    # Few operations: digits take a dozen such products, and each operation takes 140 bytes of each exported graph.
    number, pixel = tf.expand_dims(tf.range(count, dtype=tf.float32), 1), tf.range(tf.cast(size, tf.float32))
    lower, upper = start + cell * number, start + cell * (number + 1)
    overlap = tf.nn.relu(tf.minimum(upper, pixel + 1) - tf.maximum(lower, pixel))
    total = tf.reduce_sum(overlap, axis=1, keepdims=True)
    # Slivers are rounding errors.
    inside = tf.cast(total > 1e-3 * cell, tf.float32)
    return inside * overlap / tf.maximum(total, 1e-6), tf.squeeze(inside, 1)


def repeated(values: tf.Tensor, times: int) -> tf.Tensor:
    """Divides each cell of a grid into `times` x `times` cells with its value."""
    return tf.repeat(tf.repeat(values, times, axis=0), times, axis=1)


def lanczos(start: tf.Tensor, cell: tf.Tensor, count: int, size: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Computes weights of Lanczos's filter, six cells wide, or six pixels if cells are smaller, as in Pillow.

    Args:
        start: start of the first cell, in pixels; may be outside the row.
        cell: length of a cell in pixels, any positive number.
        count: number of cells.
        size: number of pixels in the row, float32.

    Returns:
        Weights, float32 [count, size], which sum to 1 per cell; and whether the middle of each cell is in the row, bool
        [count]. The weights of other cells mean nothing.
    """
    middle = start + cell * (tf.range(count, dtype=tf.float32)[:, None] + 0.5)
    pixel = tf.range(size) + 0.5
    distance = tf.abs(pixel - middle) / tf.maximum(cell, 1.0)
    # sinc(x) sinc(x / 3) but for a factor, by one sine: sin(3a) = sin(a) (3 - 4 sin(a)^2).
    angle = math.pi / LOBES * tf.maximum(distance, 1e-6)
    square = tf.square(tf.sin(angle))
    weights = square * (3 - 4 * square) / tf.square(angle)
    # Pixels outside the grid have no weight.
    weights *= tf.cast((distance < LOBES) & (pixel > start) & (pixel < start + cell * count), tf.float32)
    weights /= tf.maximum(tf.reduce_sum(weights, axis=1, keepdims=True), 1e-6)
    return weights, ((middle > 0) & (middle < size))[:, 0]
