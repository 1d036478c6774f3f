"""Brightness of paper in uneven light, as a plane over an image."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images.rectangle import Rectangle
from pipelines.data.images.resampling import repeated

# Cells per side of a square whose mean counts as one observation: narrower than a stroke.
SQUARE = 7
# Share of each side, at either end, that counts as the edge, and the weight of squares that are not on it.
RING, INNER = 0.05, 0.02
ROUNDS = 8
# Standard deviations from the paper below which nothing counts as ink.
NOISE = 3.5
# For the fits that separate paper from table and ink: number of initial brightnesses, largest difference that counts as
# equal (relative to the range of brightness, and its minimum), rounds, and weight of squares that are not on the edge.
STARTS, NEAR, LEAST, STEPS, WITHIN = 9, 0.12, 6.0, 16, 0.6
# A sheet on a table: its least side, relative to the image's; least number of its squares in a row or column, relative
# to the largest; and shares of its rectangle: the outline that it fills at least, the inside that is blank, least and
# most, and what may look like the table.
SHEET, SHORT, RIM, BLANK, BESIDE = 0.35, 0.3, 0.85, (0.2, 0.97), 0.1


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
    seen = tf.reshape(_squares(grid), (-1, 1))
    side = grid.shape[0] // SQUARE
    weights = tf.reshape(_weights(tf.ones((side, side)), WITHIN), (-1, 1))
    low, high = tf.reduce_min(seen), tf.reduce_max(seen)
    near = tf.maximum(NEAR * (high - low), LEAST)
    places = _basis(side)
    # Few squares in a corner would tilt the plane wildly.
    least = tf.reduce_sum(weights * places**2, axis=0)[:, None] * np.array([[1e-6], [0.25], [0.25]], np.float32)

    def inliers(planes: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        residual = seen - places @ planes
        return residual, weights * tf.cast(tf.abs(residual) < near, tf.float32)

    def step(number: Any, planes: tf.Tensor) -> tuple[Any, tf.Tensor]:
        residual, counted = inliers(planes)
        counts = tf.maximum((places**2).T @ counted, least)
        return number + 1, planes + places.T @ (counted * residual) / counts

    levels = low + (high - low) * (np.arange(STARTS, dtype=np.float32) + 0.5) / STARTS
    planes = tf.stack([levels, *[np.zeros(STARTS, np.float32)] * 2])
    _, planes = tf.while_loop(lambda number, _: number < STEPS, step, (0, planes), maximum_iterations=STEPS)
    _, counted = inliers(planes)
    shown = tf.reshape(tf.cast(tf.transpose(counted) > 0, tf.float32), (STARTS, side, side))
    scores = tf.reduce_sum(counted, axis=0)
    # On a large table, the sheet is the smaller of the two.
    scores += seen.shape[0] * _is_sheet(shown, tf.gather(shown, tf.argmax(scores)))
    return tf.gather(shown, tf.argmax(scores))


def _is_sheet(shown: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """Returns which maps of squares look like a sheet that lies on a table, with ink on it: float32 [maps], 0 or 1.

    Unlike the strokes of a digit, a sheet fills the outline of a rectangle, and some of its inside.

    Args:
        shown: float32 [maps, n, n], 0 or 1.
        table: float32 [n, n], 0 or 1.
    """
    # A row or column with few squares is beyond the sheet.
    rows, columns = (
        tf.cast(sums > SHORT * tf.reduce_max(sums, axis=(1, 2), keepdims=True), tf.float32)
        for sums in (tf.reduce_sum(shown, axis=axis, keepdims=True) for axis in (2, 1))
    )
    box = rows * columns
    inside = -tf.nn.max_pool2d(-box[..., None], 3, 1, "SAME")[..., 0]

    def share(mask: tf.Tensor, values: tf.Tensor) -> tf.Tensor:
        return tf.reduce_sum(mask * values, axis=(1, 2)) / tf.maximum(tf.reduce_sum(mask, axis=(1, 2)), 1.0)

    blank = share(inside, shown)
    is_large = tf.minimum(tf.reduce_mean(rows, axis=(1, 2)), tf.reduce_mean(columns, axis=(1, 2))) > SHEET
    is_inked = (blank > BLANK[0]) & (blank < BLANK[1])
    return tf.cast(is_large & is_inked & (share(box - inside, shown) > RIM) & (share(box, table) < BESIDE), tf.float32)


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
    seen = tf.reshape(_squares(grid), (-1, 1))
    # One constant: a graph stores NumPy arrays wherever they are used.
    basis = tf.constant(_basis(grid.shape[0] // SQUARE))
    weights = tf.reshape(_weights(usable, INNER) + 1e-6, (-1, 1))
    count = tf.reduce_sum(weights)
    middle = tf.reduce_sum(weights * basis, axis=0) / count * np.array([0, 1, 1], np.float32)
    away = basis - middle
    # Without squares on several rows and columns there is no slope.
    products = tf.transpose(away) @ (weights * away) + count * np.diag(np.array([0, 1e-3, 1e-3], np.float32))
    yy, yx, xx = products[1, 1], products[1, 2], products[2, 2]
    inverse = tf.stack([xx, -yx, -yx, yy]) / (yy * xx - yx**2)
    solve = tf.pad(tf.reshape(inverse, (2, 2)), ((1, 0), (1, 0))) + np.diag(np.array([1, 0, 0], np.float32)) / count
    solve @= tf.transpose(weights * away)

    def nearer(number: Any, plane: tf.Tensor, deviation: tf.Tensor) -> tuple[Any, ...]:
        plane += solve @ tf.clip_by_value(seen - away @ plane, -1.5 * deviation, 1.5 * deviation)
        return number + 1, plane, _deviation(seen - away @ plane, weights, 3 * deviation)

    # A loop instead of unrolled rounds, because tf2onnx takes seconds longer for the larger graph.
    start = (0, tf.zeros((3, 1)), tf.constant(1e6))
    _, plane, deviation = tf.while_loop(lambda number, *_: number < ROUNDS, nearer, start, maximum_iterations=ROUNDS)
    level, down, across = tf.unstack(plane[:, 0])
    level -= down * middle[1] + across * middle[2]
    y, x = _places(grid.shape[0])
    residual = grid - (level + down * y + across * x)
    # Converts coordinates from [-1, 1] over the part to pixels of the image.
    down, across = 2 * down / part.height, 2 * across / part.width
    level -= down * (part.top + part.bottom) / 2 + across * (part.left + part.right) / 2
    return Paper(level, down, across, deviation), residual


def grain(residual: tf.Tensor, usable: tf.Tensor) -> tf.Tensor:
    """Computes the deviation of single cells of the paper.

    Args:
        residual: float32 [cells, cells].
        usable: cells that may show paper, float32 [cells, cells], 0 or 1.
    """
    # The outermost cells may be the line of a frame, too thin for its squares to be anything but paper.
    residual, usable = residual[1:-1, 1:-1], usable[1:-1, 1:-1]
    weights = _weights(usable, INNER) + 1e-6
    return _deviation(residual, weights, 3 * _deviation(residual, weights, tf.constant(1e6)))


def spread(values: tf.Tensor) -> tf.Tensor:
    """Gives each cell the value of its square: [cells, cells] from [n, n]."""
    return repeated(values, SQUARE)


def _squares(grid: tf.Tensor) -> tf.Tensor:
    """Averages squares of `SQUARE` x `SQUARE` cells."""
    return tf.nn.avg_pool2d(grid[None, ..., None], SQUARE, SQUARE, "VALID")[0, ..., 0]


def _places(cells: int) -> tuple[np.ndarray, np.ndarray]:
    """Centres of cells from -1 to 1, down and across."""
    at = ((np.arange(cells) + 0.5) / cells * 2 - 1).astype(np.float32)
    return at[:, None], at[None]


def _basis(side: int) -> np.ndarray:
    """Values of the functions 1, y and x at the centres of `side` x `side` squares, float32 [squares, 3]."""
    y, x = _places(side)
    return np.stack(np.broadcast_arrays(np.float32(1), y, x), axis=-1).reshape(-1, 3)


def _weights(usable: tf.Tensor, inner: float) -> tf.Tensor:
    """Weights usable cells along the edge by 1, and others by `inner`: float32 [cells, cells]."""
    # Products that depend on the image: the weights as a constant would take 314 kB in each exported graph.
    down, across = (np.where(np.abs(at) > 1 - 2 * RING, 1, inner) for at in _places(usable.shape[0]))
    return tf.maximum(usable * down, usable * across)


def _deviation(residual: tf.Tensor, weights: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    """Computes the standard deviation of residuals from their mean absolute values, clipped at `most`."""
    # The mean absolute deviation of a normal distribution is 0.8 standard deviations.
    return 1.25 * tf.reduce_sum(weights * tf.minimum(tf.abs(residual), most)) / tf.reduce_sum(weights)
