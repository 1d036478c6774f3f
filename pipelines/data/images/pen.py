"""Strokes of markers and of coarse scans, redrawn as thin and as sharp as those of the pens that wrote MNIST."""

from typing import Any, NamedTuple

import tensorflow as tf

# Cells per pixel of MNIST.
FINE = 6
# Width of strokes in pixels from which they are thinned to it: three quarters of MNIST's are thinner.
WIDTH = 2.8
# Width of the edges of strokes in pixels from which they are sharpened: 99% of MNIST's are narrower, enlarged or not.
SOFT = 1.7
# Shares of the strongest ink that become paper and ink in sharpened strokes.
LOW, HIGH = 0.2, 0.7


class Redrawn(NamedTuple):
    """Strokes, and whether they had to be redrawn."""

    ink: tf.Tensor
    """float32 [n, n], from 0 to 1."""
    needed: tf.Tensor
    """Whether the original strokes are thick or blurred: bool scalar."""


def redraw(ink: tf.Tensor) -> Redrawn:
    """Sharpens strokes, and thins them to the width of a pen.

    Args:
        ink: float32 [n, n], not negative, in cells of which `FINE` are a pixel of MNIST.

    Returns:
        The strokes, one cell thinner for each cell that they are too wide.
    """
    share = ink / tf.maximum(tf.reduce_max(ink), 1e-6)
    sharp = tf.clip_by_value((share - LOW) / (HIGH - LOW), 0, 1)
    # An edge that is `b` wide has b / 6 of this product for each unit of its length.
    edge = 6 * tf.reduce_sum(share * (1 - share)) / _outline(share)
    width = 2 * tf.reduce_sum(sharp) / _outline(sharp)
    rounds = tf.round(tf.maximum(width / FINE - WIDTH, 0.0) * FINE / 2)

    def erode(number: tf.Tensor, drawn: tf.Tensor) -> tuple[Any, ...]:
        # Squares and crosses in turn make an octagon, which thins strokes of all directions alike.
        across, down = _least(drawn, 1, 3), _least(drawn, 3, 1)
        square, cross = _least(across, 3, 1), tf.minimum(across, down)
        return number + 1, tf.where(tf.math.floormod(number, 2.0) > 0, square, cross)

    _, thin = tf.while_loop(lambda number, _: number < rounds, erode, (0.0, sharp))
    return Redrawn(thin, (rounds > 0) | (edge > SOFT * FINE))


def _outline(ink: tf.Tensor) -> tf.Tensor:
    """Computes the length of the outline of strokes, however blurred it is: the total variation of their ink."""
    down, across = ink[1:, :-1] - ink[:-1, :-1], ink[:-1, 1:] - ink[:-1, :-1]
    return tf.maximum(tf.reduce_sum(tf.sqrt(down**2 + across**2)), 1e-6)


def _least(ink: tf.Tensor, rows: int, columns: int) -> tf.Tensor:
    return -tf.nn.max_pool2d(-ink[None, ..., None], (rows, columns), 1, "SAME")[0, ..., 0]
