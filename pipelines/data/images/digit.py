"""Handwritten digits, dark on light or light on dark, of any size and position, converted to the format of MNIST.

MNIST scales the digit into a box of 20 x 20 pixels, preserving its aspect ratio, and puts its centre of mass at the
centre of 28 x 28 pixels (LeCun, Bottou, Bengio and Haffner 1998, section III.A); in its files, that centre is the pixel
after the middle. Here the paper is estimated first, as a plane of brightness fitted to the edge of the image; ink is
what lies far from that plane.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from pipelines.data.images.resampling import coverage

SIDE, BOX = 28, 20
# Largest brightness at the edge of an image that still counts as a stored digit with a black edge.
BLACK = 64.0
# Cells per side of the grids that find the digit and measure its box; and the share of each side, at either end, that
# counts as paper.
FIND, MEASURE, RING = 112, 280, 0.05
# Share of the strongest ink from which cells count as ink: to find the digit, to measure its box, and to measure its
# box on grainy paper.
ROUGH, EXACT, HALF = 0.3, 0.06, 0.35
# Number of cells, in either grid, that together are narrower than a stroke.
STROKE = 7
# Margin around the digit in the second grid, relative to its longest side.
MARGIN = 0.25
# Standard deviations of the paper below which nothing counts as ink.
NOISE = 3.5
ROUNDS = 8
# Ink fainter than this share of the light is not stretched to black.
FAINT = 0.02


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


class Cells(NamedTuple):
    """A grid of square cells over an image, in pixels."""

    top: tf.Tensor
    left: tf.Tensor
    size: tf.Tensor
    number: int
    """Number of cells along each side."""


class Paper(NamedTuple):
    """Brightness of the paper as a plane over the image, and how far cells deviate from it: float32 scalars."""

    level: tf.Tensor
    down: tf.Tensor
    across: tf.Tensor
    deviation: tf.Tensor

    def at(self, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Brightness [n, m] at rows y [n] and columns x [m], in pixels."""
        return self.level + self.down * y[:, None] + self.across * x[None]


def digit(grey: tf.Tensor) -> tf.Tensor:
    """Finds the digit, subtracts the paper, and fits the digit into 28 x 28 pixels.

    Args:
        grey: float32 [h, w], 0 to 255.

    Returns:
        float32 [28, 28], whole numbers from 0 (paper) to 255 (ink). An image of 28 x 28 with a black edge is unchanged.
    """
    edge = tf.reduce_max(tf.stack([tf.reduce_max(line) for line in (grey[0], grey[-1], grey[:, 0], grey[:, -1])]))
    stored = tf.reduce_all(tf.shape(grey) == SIDE) & (edge < BLACK)
    return tf.ensure_shape(tf.cond(stored, lambda: tf.round(grey), lambda: _written(grey)), (SIDE, SIDE))


def _written(grey: tf.Tensor) -> tf.Tensor:
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(grey)))
    whole = Rectangle(tf.zeros(()), height, tf.zeros(()), width)
    _, residual = _paper(_resampled(grey, whole, FIND), whole)
    # Ink covers little area but deviates far, so that the cubes show its sign.
    sign = tf.where(tf.reduce_sum(residual**3) < 0, -1.0, 1.0)
    ink = tf.nn.relu(sign * residual)
    near = _box(ink, whole, ROUGH * tf.reduce_max(ink))
    room = MARGIN * near.longest
    part = Rectangle(
        tf.maximum(near.top - room, 0.0),
        tf.minimum(near.bottom + room, height),
        tf.maximum(near.left - room, 0.0),
        tf.minimum(near.right + room, width),
    )
    grid = _resampled(grey, part, MEASURE)
    paper, residual = _paper(grid, part)
    ink = sign * residual
    least = EXACT * tf.reduce_max(ink)
    sharp = _box(ink, part, least)
    # On grainy paper, ink ends halfway between paper and stroke, and anything thinner than a stroke is grain.
    grainy = NOISE * _grain(residual) > least
    ink = tf.nn.avg_pool2d(ink[None, ..., None], STROKE, 1, "SAME")[0, ..., 0]
    soft = _box(ink, part, tf.maximum(HALF * tf.reduce_max(ink), NOISE * paper.deviation))
    box = Rectangle(*(tf.where(grainy, *edges) for edges in zip(soft, sharp, strict=True)))
    cell = tf.maximum(box.longest, 1.0) / BOX

    def ink_at(top: tf.Tensor, left: tf.Tensor, count: int) -> tf.Tensor:
        return _ink(grey, paper, sign, Cells(top, left, cell, count))

    # Cells start at the edge of the box, so that a digit of 20 pixels keeps its pixels; MNIST shifts by whole pixels.
    down, across = _shift(ink_at(box.top, box.left, BOX))
    canvas = ink_at(box.top - down * cell, box.left - across * cell, SIDE)
    return tf.round(255 * canvas / tf.maximum(tf.reduce_max(canvas), FAINT))


def _resampled(grey: tf.Tensor, part: Rectangle, cells: int) -> tf.Tensor:
    """Resamples a part of the image to a grid, [cells, cells]."""
    rows, _ = coverage(part.top, (part.bottom - part.top) / cells, cells, tf.shape(grey)[0])
    columns, _ = coverage(part.left, (part.right - part.left) / cells, cells, tf.shape(grey)[1])
    return rows @ grey @ tf.transpose(columns)


def _paper(grid: tf.Tensor, part: Rectangle) -> tuple[Paper, tf.Tensor]:
    """Fits the plane to a ring along the edge and returns the residuals of all cells.

    Least squares are repeated with residuals clipped around the previous fit, which makes the fit robust to ink in the
    ring.
    """
    coarse = tf.nn.avg_pool2d(grid[None, ..., None], STROKE, STROKE, "VALID")[0, ..., 0]
    y, x = _places(coarse.shape[0])
    ring = _ring(coarse.shape[0])
    # The ring is symmetric, so the level and both slopes are independent.
    count, square = tf.reduce_sum(ring), tf.reduce_sum(ring * y**2)

    def nearer(number: Any, plane: tf.Tensor, deviation: tf.Tensor) -> tuple[Any, ...]:
        residual = coarse - (plane[0] + plane[1] * y + plane[2] * x)
        cut = ring * tf.clip_by_value(residual, -1.5 * deviation, 1.5 * deviation)
        plane += [tf.reduce_sum(cut) / count, tf.reduce_sum(cut * y) / square, tf.reduce_sum(cut * x) / square]
        residual = coarse - (plane[0] + plane[1] * y + plane[2] * x)
        return number + 1, plane, _deviation(residual, ring, 3 * deviation)

    # A loop instead of unrolled rounds, because tf2onnx takes ten seconds for a graph twice as large.
    start = (0, tf.zeros(3), tf.constant(1e6))
    _, plane, deviation = tf.while_loop(lambda number, *_: number < ROUNDS, nearer, start, maximum_iterations=ROUNDS)
    level, down, across = tf.unstack(plane)
    y, x = _places(grid.shape[0])
    residual = grid - (level + down * y + across * x)
    # Converts coordinates from [-1, 1] over the part to pixels of the image.
    down, across = 2 * down / (part.bottom - part.top), 2 * across / (part.right - part.left)
    level -= down * (part.top + part.bottom) / 2 + across * (part.left + part.right) / 2
    return Paper(level, down, across, deviation), residual


def _grain(residual: tf.Tensor) -> tf.Tensor:
    """Deviation of single cells of the paper."""
    ring = _ring(residual.shape[0])
    return _deviation(residual, ring, 3 * _deviation(residual, ring, tf.constant(1e6)))


def _deviation(residual: tf.Tensor, ring: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    # The mean absolute deviation of a normal distribution is 0.8 standard deviations.
    return 1.25 * tf.reduce_sum(ring * tf.minimum(tf.abs(residual), most)) / tf.reduce_sum(ring)


def _places(cells: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Centres of cells from -1 to 1, down and across."""
    at = (tf.range(cells, dtype=tf.float32) + 0.5) / cells * 2 - 1
    return at[:, None], at[None]


def _ring(cells: int) -> tf.Tensor:
    y, x = _places(cells)
    return tf.cast(tf.maximum(tf.abs(y), tf.abs(x)) > 1 - 2 * RING, tf.float32)


def _box(ink: tf.Tensor, part: Rectangle, least: tf.Tensor) -> Rectangle:
    """Bounding box of ink above `least`, rounded to whole pixels."""
    (top, bottom), (left, right) = (_ends(tf.reduce_max(ink, axis=axis) > least) for axis in (1, 0))
    cells = ink.shape[0]
    down, across = (part.bottom - part.top) / cells, (part.right - part.left) / cells
    edges = part.top + top * down, part.top + bottom * down, part.left + left * across, part.left + right * across
    return Rectangle(*(tf.round(edge) for edge in edges))


def _ends(inked: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last inked cell; all cells if none is inked."""
    at = tf.range(inked.shape[0], dtype=tf.float32)
    inked |= ~tf.reduce_any(inked)
    return tf.reduce_min(tf.where(inked, at, float(inked.shape[0]))), tf.reduce_max(tf.where(inked, at + 1, 0.0))


def _ink(grey: tf.Tensor, paper: Paper, sign: tf.Tensor, cells: Cells) -> tf.Tensor:
    """Ink in square cells, [count, count]; none outside the image."""
    top, left, size, count = cells
    rows, in_rows = coverage(top, size, count, tf.shape(grey)[0])
    columns, in_columns = coverage(left, size, count, tf.shape(grey)[1])
    middle = (tf.range(count, dtype=tf.float32) + 0.5) * size
    blank = paper.at(top + middle, left + middle)
    # These cells are larger than those in which the deviation was measured, and therefore deviate less.
    ink = tf.nn.relu(sign * (rows @ grey @ tf.transpose(columns) - blank) - NOISE / 2 * paper.deviation)
    # Dark ink absorbs a share of the light on the paper; light ink adds its own.
    ink /= tf.where(sign < 0, tf.maximum(blank, 1.0), 255.0)
    return ink * in_rows[:, None] * in_columns[None]


def _shift(canvas: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Offset of the box in the 28 x 28 cells, in whole cells, that puts the centre of mass where MNIST has it."""
    at = tf.range(BOX, dtype=tf.float32) + 0.5
    mass = tf.maximum(tf.reduce_sum(canvas), 1e-6)
    y, x = tf.reduce_sum(canvas * at[:, None]) / mass, tf.reduce_sum(canvas * at[None]) / mass
    return tf.math.ceil(SIDE / 2 - y), tf.math.ceil(SIDE / 2 - x)
