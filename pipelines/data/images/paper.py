"""Brightness of paper in uneven light, as a plane over an image."""

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images import table
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
# Planes of different brightness that may be the paper next to a table; and cells around the table that are left out,
# because its edge is not sharp.
PAPERS, TABLE = 4, 2
# Squares on the edge, and those amid 3 x 3, that may differ from the paper without a table.
EDGE, WIDE = 4, 6


class Paper(NamedTuple):
    """Brightness of the paper as a plane over the image, and how far squares deviate from it: float32 scalars."""

    level: tf.Tensor
    down: tf.Tensor
    across: tf.Tensor
    deviation: tf.Tensor

    def at(self, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Brightness [n, m] at rows y [n] and columns x [m], in pixels."""
        return self.level + self.down * y[:, None] + self.across * x[None]


def support(grid: tf.Tensor, photographed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the squares that show paper, and the table on which it may lie.

    Planes are fitted from several brightnesses, to the squares that are near each; the paper is the one that most
    squares are near, those along the edge of the image first, or the one that leaves a sheet on a table.

    Args:
        grid: brightness of cells, float32 [cells, cells].
        photographed: whether there may be a table; bool scalar.

    Returns:
        The squares that show paper, float32 [n, n], 0 or 1; and the cells that show a table, float32 [cells, cells].
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
    residual, counted = inliers(planes)
    scores = tf.reduce_sum(counted, axis=0)
    best = tf.argmax(scores)
    shown = tf.cast(tf.transpose(counted) > 0, tf.float32)

    def beside_table() -> tuple[tf.Tensor, tf.Tensor]:
        # tf2onnx does not know the shapes of what a branch takes from outside.
        fitted, ranked = tf.reshape(planes, (3, STARTS)), tf.reshape(scores, (STARTS,))
        papers = _distinct(ranked, fitted[0], near)
        some = tf.reshape(tf.gather(fitted, papers, axis=1), (3, PAPERS))
        sheets, found = table.find(_residuals(tf.reshape(grid, grid.shape), some))
        # The first one that is a sheet; they are in the order of their scores.
        chosen = tf.argmax(tf.cast(found, tf.float32))
        beyond = (1 - tf.gather(sheets, chosen)) * tf.cast(tf.gather(found, chosen), tf.float32)
        beyond = _most(repeated(beyond, grid.shape[0] // table.SIDE), 2 * TABLE + 1, 1)
        squares = tf.reshape(tf.gather(shown, tf.gather(papers, chosen)), (side, side))
        return squares * (1 - _most(beyond, SQUARE, SQUARE)), beyond

    away = tf.reshape(tf.abs(tf.gather(residual, best, axis=1)), (side, side))
    differs = tf.cast(away > tf.maximum(NEAR * tf.reduce_max(away), LEAST), tf.float32)
    edge = np.pad(np.zeros((side - 2, side - 2), np.float32), 1, constant_values=1)
    # Few images of a digit take the time to look for a table: strokes touch the edge in few squares, and are narrow.
    may_have_table = (tf.reduce_sum(differs * edge) > EDGE) | (tf.reduce_sum(-_most(-differs, 3, 1)) > WIDE)

    def alone() -> tuple[tf.Tensor, tf.Tensor]:
        # All 0, but no constant, which would take 50 kB in each exported graph.
        return tf.reshape(tf.gather(shown, best), (side, side)), tf.nn.relu(-tf.abs(grid))

    return tf.cond(may_have_table & photographed, beside_table, alone)


def _distinct(scores: tf.Tensor, levels: tf.Tensor, near: tf.Tensor) -> tf.Tensor:
    """Finds the planes with the largest scores whose levels differ: int64 [PAPERS]."""
    found: list[tf.Tensor] = []
    for _ in range(PAPERS):
        found.append(tf.argmax(scores))
        scores = tf.where(tf.abs(levels - tf.gather(levels, found[-1])) > near, scores, -1.0)
    return tf.stack(found)


def _residuals(grid: tf.Tensor, planes: tf.Tensor) -> tf.Tensor:
    """Brightness relative to each plane, float32 [planes, table.SIDE, table.SIDE]."""
    share = grid.shape[0] // table.SIDE
    cells = tf.nn.avg_pool2d(grid[None, ..., None], share, share, "VALID")[..., 0]
    y, x = _places(table.SIDE)
    level, down, across = (row[:, None, None] for row in tf.unstack(planes))
    return cells - (level + down * y + across * x)


def _most(values: tf.Tensor, side: int, step: int) -> tf.Tensor:
    """Takes the maximum over squares around each cell, or over adjacent ones."""
    padding = "SAME" if step == 1 else "VALID"
    return tf.nn.max_pool2d(values[None, ..., None], side, step, padding)[0, ..., 0]


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
