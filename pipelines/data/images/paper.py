"""Brightness of paper in uneven light, as a plane over an image."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Cells per side of a square whose mean counts as one observation: narrower than a stroke.
SQUARE = 7
# Share of each side, at either end, that counts as the edge, and the weight of squares that are not on it.
RING, INNER = 0.05, 0.02
ROUNDS = 8
# Standard deviations of the paper below which nothing counts as ink.
NOISE = 3.5
# To tell paper from table and ink: number of brightnesses to start from, share of the range of brightness that counts
# as equal, the least such difference, rounds, and the weight of squares that are not on the edge.
STARTS, NEAR, LEAST, STEPS, WITHIN = 9, 0.12, 6.0, 16, 0.6


class Rectangle(NamedTuple):
    """A rectangle of an image, in pixels, float32 scalars."""

    top: tf.Tensor
    bottom: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor

    @property
    def longest(self) -> tf.Tensor:
        """The longer side."""
        return tf.maximum(self.bottom - self.top, self.right - self.left)


class Paper(NamedTuple):
    """Brightness of the paper as a plane over the image, and how far squares deviate from it: float32 scalars."""

    level: tf.Tensor
    down: tf.Tensor
    across: tf.Tensor
    deviation: tf.Tensor

    def at(self, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Brightness [n, m] at rows y [n] and columns x [m], in pixels."""
        return self.level + self.down * y[:, None] + self.across * x[None]


def support(grid: tf.Tensor) -> tf.Tensor:
    """Finds the squares that show paper, even if a table shows on several sides: float32 [n, n], 0 or 1.

    Planes are fitted from several brightnesses, to the squares that are near each; the paper is the one that most
    squares are near, those along the edge of the image first.

    Args:
        grid: brightness of cells, float32 [cells, cells].
    """
    seen = _squares(grid)
    y, x = _places(seen.shape[0])
    weights = _weights(tf.ones_like(seen), WITHIN)
    low, high = tf.reduce_min(seen), tf.reduce_max(seen)
    near = tf.maximum(NEAR * (high - low), LEAST)
    square = tf.reduce_sum(weights * y**2)

    def inliers(planes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        level, down, across = (value[:, None, None] for value in tf.unstack(planes, axis=1))
        residual = seen - (level + down * y + across * x)
        return residual, weights * tf.cast(tf.abs(residual) < near, tf.float32)

    def step(number: Any, planes: tf.Tensor) -> tuple[Any, tf.Tensor]:
        residual, counted = inliers(planes)
        moved = counted * residual
        # Few squares in a corner would tilt the plane wildly.
        down, across = (_sums(moved * at) / tf.maximum(_sums(counted * at**2), square / 4) for at in (y, x))
        return number + 1, planes + tf.stack([_sums(moved) / tf.maximum(_sums(counted), 1e-6), down, across], axis=1)

    levels = low + (high - low) * (np.arange(STARTS, dtype=np.float32) + 0.5) / STARTS
    planes = tf.stack([levels, *[np.zeros(STARTS, np.float32)] * 2], axis=1)
    _, planes = tf.while_loop(lambda number, _: number < STEPS, step, (0, planes), maximum_iterations=STEPS)
    _, counted = inliers(planes)
    return tf.cast(tf.gather(counted, tf.argmax(_sums(counted))) > 0, tf.float32)


def fit(grid: tf.Tensor, part: Rectangle, usable: tf.Tensor) -> tuple[Paper, tf.Tensor]:
    """Fits the plane to a ring along the edge.

    Least squares are repeated with residuals clipped around the previous fit, which makes the fit robust to ink.

    Args:
        grid: brightness of cells, float32 [cells, cells].
        part: the rectangle that they cover.
        usable: squares that may show paper, float32 [n, n], 0 or 1.

    Returns:
        The paper, and the residuals of all cells.
    """
    seen = _squares(grid)
    y, x = _places(seen.shape[0])
    weights = _weights(usable, INNER) + 1e-6
    count = tf.reduce_sum(weights)
    middle_y, middle_x = tf.reduce_sum(weights * y) / count, tf.reduce_sum(weights * x) / count
    away_y, away_x = y - middle_y, x - middle_x
    # Without squares on several rows and columns there is no slope.
    yy = tf.reduce_sum(weights * away_y**2) + 1e-3 * count
    xx = tf.reduce_sum(weights * away_x**2) + 1e-3 * count
    yx = tf.reduce_sum(weights * away_y * away_x)

    def nearer(number: Any, plane: tf.Tensor, deviation: tf.Tensor) -> tuple[Any, ...]:
        residual = seen - (plane[0] + plane[1] * away_y + plane[2] * away_x)
        cut = weights * tf.clip_by_value(residual, -1.5 * deviation, 1.5 * deviation)
        ya, xa = tf.reduce_sum(cut * away_y), tf.reduce_sum(cut * away_x)
        slopes = [xx * ya - yx * xa, yy * xa - yx * ya]
        plane += tf.stack([tf.reduce_sum(cut) / count, *(slope / (yy * xx - yx**2) for slope in slopes)])
        residual = seen - (plane[0] + plane[1] * away_y + plane[2] * away_x)
        return number + 1, plane, _deviation(residual, weights, 3 * deviation)

    # A loop instead of unrolled rounds, because tf2onnx takes ten seconds for a graph twice as large.
    start = (0, tf.zeros(3), tf.constant(1e6))
    _, plane, deviation = tf.while_loop(lambda number, *_: number < ROUNDS, nearer, start, maximum_iterations=ROUNDS)
    level, down, across = tf.unstack(plane)
    level -= down * middle_y + across * middle_x
    y, x = _places(grid.shape[0])
    residual = grid - (level + down * y + across * x)
    # Converts coordinates from [-1, 1] over the part to pixels of the image.
    down, across = 2 * down / (part.bottom - part.top), 2 * across / (part.right - part.left)
    level -= down * (part.top + part.bottom) / 2 + across * (part.left + part.right) / 2
    return Paper(level, down, across, deviation), residual


def grain(residual: tf.Tensor, usable: tf.Tensor) -> tf.Tensor:
    """Computes the deviation of single cells of the paper.

    Args:
        residual: float32 [cells, cells].
        usable: cells that may show paper, float32 [cells, cells], 0 or 1.
    """
    weights = _weights(usable, INNER) + 1e-6
    return _deviation(residual, weights, 3 * _deviation(residual, weights, tf.constant(1e6)))


def spread(values: tf.Tensor) -> tf.Tensor:
    """Gives each cell the value of its square: [cells, cells] from [n, n]."""
    return tf.repeat(tf.repeat(values, SQUARE, axis=0), SQUARE, axis=1)


def _squares(grid: tf.Tensor) -> tf.Tensor:
    """Averages squares of `SQUARE` x `SQUARE` cells."""
    return tf.nn.avg_pool2d(grid[None, ..., None], SQUARE, SQUARE, "VALID")[0, ..., 0]


def _places(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres of cells from -1 to 1, down and across."""
    at = ((np.arange(cells) + 0.5) / cells * 2 - 1).astype(np.float32)
    return at[:, None], at[None]


def _weights(usable: tf.Tensor, inner: float) -> tf.Tensor:
    """Weights usable cells along the edge by 1, and others by `inner`: float32 [cells, cells]."""
    # Products that depend on the image: the weights as a constant would take 314 kB in each exported graph.
    down, across = (np.where(np.abs(at) > 1 - 2 * RING, 1, inner) for at in _places(usable.shape[0]))
    return tf.maximum(usable * down, usable * across)


def _deviation(residual: tf.Tensor, weights: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    """Computes the standard deviation of residuals from their mean absolute values, clipped at `most`."""
    # The mean absolute deviation of a normal distribution is 0.8 standard deviations.
    return 1.25 * tf.reduce_sum(weights * tf.minimum(tf.abs(residual), most)) / tf.reduce_sum(weights)


def _sums(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values, axis=(1, 2))
