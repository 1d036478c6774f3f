"""Handwritten digits, dark on light or light on dark, of any size and position, converted to the format of MNIST.

MNIST scales the digit into a box of 20 x 20 pixels, preserving its aspect ratio, and puts its centre of mass at the
centre of 28 x 28 pixels (LeCun, Bottou, Bengio and Haffner 1998, section III.A); in its files, that centre is the pixel
after the middle. Here soft shadows are lifted, and the paper is estimated as a plane of brightness; strokes are
whatever deviates from that plane and is neither a table, a frame nor a speck. Strokes of markers are redrawn as thin as
those of MNIST, and coarse scans as sharp.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from pipelines.data.images import paper, scan, shadow, strokes
from pipelines.data.images.paper import NOISE, SQUARE, Paper
from pipelines.data.images.rectangle import Rectangle
from pipelines.data.images.resampling import coverage

SIDE, BOX = 28, 20
# Brightness below which a pixel counts as black, and number of other pixels that the edge of a stored digit may have: a
# stroke of one in a hundred of MNIST's digits touches it, with 5 pixels at most.
BLACK, TOUCHING = 64.0, 8.0
# Cells per side of the grids that find the digit and measure its box.
FIND, MEASURE = 112, 280
# Least ink of a cell that counts as ink, relative to the strongest: to measure the box, and the same on grainy paper.
EXACT, HALF = 0.06, 0.35
# Margin around the digit in the second grid, relative to its longest side.
MARGIN = 0.25
# Strokes are redrawn if a pixel of MNIST is at least this many pixels of the image wide.
LARGE = 1.5
# Cells per pixel of MNIST in which they are redrawn.
FINE = 6
# Strokes that are wider than this many pixels are thinned to it: three quarters of MNIST's are thinner.
WIDTH = 2.8
# Strokes whose edges are wider than this many pixels, such as blurred ones, are left alone: redrawing would lose the
# faint ones. Nearly all of MNIST's are narrower, enlarged or not.
SOFT = 1.7
# Shares of the strongest ink that become paper and ink in sharpened strokes.
LOW, HIGH = 0.2, 0.7
# Ink fainter than this share of the light is not stretched to black.
FAINT = 0.02


class Cells(NamedTuple):
    """A grid of square cells over an image, in pixels."""

    top: tf.Tensor
    left: tf.Tensor
    size: tf.Tensor
    number: int
    """Number of cells along each side."""


class NormalizedDigit(NamedTuple):
    """Input of a net, and the digits in the image that it was made from."""

    image: tf.Tensor
    """float32 [28, 28], whole numbers from 0 (paper) to 255 (ink)."""
    boxes: tf.Tensor
    """Top, bottom, left and right of each digit from left to right, float32 [digits, 4], from 0 to 1."""


class Redrawn(NamedTuple):
    """Strokes, and whether they had to be redrawn."""

    ink: tf.Tensor
    """float32 [n, n], from 0 to 1."""
    needed: tf.Tensor
    """True if the original strokes are thick, and sharp enough to be redrawn; bool scalar."""


def digit(grey: tf.Tensor) -> NormalizedDigit:
    """Finds the digit, subtracts the paper, and fits the digit into 28 x 28 pixels.

    Args:
        grey: float32 [h, w], 0 to 255.

    Returns:
        The input of a net, and the digits. An image of 28 x 28 whose edge is black, but for a stroke that touches it,
        is unchanged, and one digit unless it is black.
    """
    return NormalizedDigit(*tf.cond(is_stored(grey), lambda: stored(grey), lambda: written(grey)))


def is_stored(grey: tf.Tensor) -> tf.Tensor:
    """Returns whether an image is a digit as MNIST stores it: 28 x 28 with a black edge, but for touching strokes."""
    edge = tf.concat([grey[0], grey[-1], grey[:, 0], grey[:, -1]], 0)
    touching = tf.reduce_sum(tf.cast(edge >= BLACK, tf.float32))
    return tf.reduce_all(tf.shape(grey) == SIDE) & (touching <= TOUCHING)


def stored(grey: tf.Tensor) -> NormalizedDigit:
    """Leaves a stored digit unchanged; see `digit`."""
    whole = tf.constant([[0.0, 1.0, 0.0, 1.0]])
    return NormalizedDigit(tf.round(grey), whole[: tf.cast(tf.reduce_max(grey) > 0, tf.int32)])


def written(grey: tf.Tensor) -> NormalizedDigit:
    """Converts a digit on paper; see `digit`."""
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(grey)))
    whole = Rectangle(tf.zeros(()), height, tf.zeros(()), width)
    grid = _resampled(grey, whole, FIND)
    coarse = scan.fit(grid)
    # The cells of a scan are square, give or take an eighth.
    is_scan = coarse.found & (scan.CELLS * tf.abs(height - width) < tf.maximum(height, width))
    shade = shadow.measure(grid)
    is_shaded = shade.found & ~is_scan
    seen = tf.cond(is_shaded, lambda: shadow.lift(grey, shade.gain), lambda: tf.identity(grey))
    grid *= tf.where(is_shaded, shadow.spread(shade.gain, FIND), 1.0)
    # Neither scans nor soft shadows have one.
    shown, table = paper.support(grid, ~(is_scan | shade.found))
    _, residual = paper.fit(grid, whole, shown)
    grain = paper.grain(residual, paper.spread(shown))
    found = strokes.find(residual, grain, height, width, filled=is_scan, table=table)
    near = _box(found.ink, whole, 0.0)
    room = MARGIN * near.longest
    part = Rectangle(
        tf.maximum(near.top - room, 0.0),
        tf.minimum(near.bottom + room, height),
        tf.maximum(near.left - room, 0.0),
        tf.minimum(near.right + room, width),
    )
    down, across = height / FIND, width / FIND

    def of_grid(values: tf.Tensor, cells: int) -> tf.Tensor:
        sides = (part.top / down, part.bottom / down, part.left / across, part.right / across)
        return _resampled(values, Rectangle(*sides), cells)

    grid = _resampled(seen, part, MEASURE)
    clear = 1 - of_grid(found.other, MEASURE)
    blank = of_grid(found.blank, MEASURE // SQUARE)
    level, residual = paper.fit(grid, part, tf.cast(blank > 0.95, tf.float32))
    rough = found.sign * residual * clear
    least = EXACT * tf.reduce_max(rough)
    sharp = _box(rough, part, least)
    # On grainy paper, ink ends halfway between paper and stroke, and anything thinner than a stroke is grain.
    grainy = NOISE * paper.grain(residual, paper.spread(tf.cast(blank > 0.95, tf.float32))) > least
    ink = tf.nn.avg_pool2d(rough[None, ..., None], SQUARE, 1, "SAME")[0, ..., 0]
    soft = _box(ink, part, tf.maximum(HALF * tf.reduce_max(ink), NOISE * level.deviation))
    box = Rectangle(*(tf.where(grainy, *edges) for edges in zip(soft, sharp, strict=True)))

    def ink_in(cells: Cells) -> tf.Tensor:
        rows, _ = coverage(cells.top / down, cells.size / down, cells.number, FIND)
        columns, _ = coverage(cells.left / across, cells.size / across, cells.number, FIND)
        return _ink(seen, level, found.sign, cells) * (1 - rows @ found.other @ tf.transpose(columns))

    redrawn = _redrawn(tf.nn.relu(rough - NOISE / 2 * level.deviation), part, box)
    clear = _fitted(tf.where(is_scan, scan.redraw(coarse.ink), redrawn.ink))
    canvas = tf.where(is_scan | redrawn.needed, clear, _centred(ink_in, box))
    image = tf.round(255 * canvas / tf.maximum(tf.reduce_max(canvas), FAINT))
    return NormalizedDigit(image, found.boxes)


def redraw(ink: tf.Tensor) -> Redrawn:
    """Thins strokes to the width of MNIST's, and sharpens them.

    Args:
        ink: float32 [n, n], not negative, in cells, `FINE` per pixel of MNIST.

    Returns:
        The strokes, one cell thinner for each cell that they are too wide.
    """
    share = ink / tf.maximum(tf.reduce_max(ink), 1e-6)
    sharp = tf.clip_by_value((share - LOW) / (HIGH - LOW), 0, 1)
    # An edge that is `b` wide has b / 6 of this product for each unit of its length.
    edge = 6 * tf.reduce_sum(share * (1 - share)) / _outline(share)
    rounds = count_rounds(sharp)

    def erode(number: tf.Tensor, drawn: tf.Tensor) -> tuple[Any, ...]:
        # Squares and crosses in turn make an octagon, which thins strokes of all directions alike.
        across, down = _least(drawn, 1, 3), _least(drawn, 3, 1)
        square, cross = _least(across, 3, 1), tf.minimum(across, down)
        eroded = tf.where(tf.math.floormod(number, 2.0) > 0, cross, square)
        # The last round may be a fraction of one.
        return number + 1, drawn - tf.minimum(rounds - number, 1.0) * (drawn - eroded)

    most = most_rounds(ink.shape[0])
    _, thin = tf.while_loop(lambda number, _: number < rounds, erode, (0.0, sharp), maximum_iterations=most)
    return Redrawn(thin, (rounds > 0.5) & (edge < SOFT * FINE))


def count_rounds(sharp: tf.Tensor) -> tf.Tensor:
    """Computes how many rounds thin strokes to the width of MNIST's: float32 scalar, at most `most_rounds`.

    Args:
        sharp: ink, float32 [n, n], from 0 to 1.
    """
    width = 2 * tf.reduce_sum(sharp) / _outline(sharp)
    # Whatever is wider has hardly any outline within the grid, such as an uneven light, and is no stroke.
    return tf.where(width <= _widest(sharp.shape[0]), tf.maximum(width - WIDTH * FINE, 0.0) / 2, 0.0)


def most_rounds(cells: int) -> int:
    """Returns the largest number of rounds that thin strokes on a grid of `cells` x `cells`."""
    return math.ceil((_widest(cells) - WIDTH * FINE) / 2)


def _widest(cells: int) -> float:
    """Returns the width, as it is measured, of a square that fills the grid: half its side, as all sides count."""
    return cells / 2


def _outline(ink: tf.Tensor) -> tf.Tensor:
    """Computes the length of the outline of strokes, however blurred it is: the total variation of their ink."""
    down, across = ink[1:, :-1] - ink[:-1, :-1], ink[:-1, 1:] - ink[:-1, :-1]
    return tf.maximum(tf.reduce_sum(tf.sqrt(down**2 + across**2)), 1e-6)


def _least(ink: tf.Tensor, rows: int, columns: int) -> tf.Tensor:
    return -tf.nn.max_pool2d(-ink[None, ..., None], (rows, columns), 1, "SAME")[0, ..., 0]


def _redrawn(ink: tf.Tensor, part: Rectangle, box: Rectangle) -> Redrawn:
    """Redraws the strokes of a digit in 28 x 28 pixels; see `redraw`.

    Args:
        ink: float32 [cells, cells].
        part: the rectangle of the image that they cover.
        box: the digit in it.
    """
    cell = tf.maximum(box.longest, 1.0) / BOX
    room = (SIDE - BOX) // 2 * cell
    height, width = part.height / MEASURE, part.width / MEASURE
    fine = FINE * SIDE
    rows, _ = coverage((box.top - room - part.top) / height, cell / FINE / height, fine, MEASURE)
    columns, _ = coverage((box.left - room - part.left) / width, cell / FINE / width, fine, MEASURE)
    drawn = redraw(rows @ ink @ tf.transpose(columns))
    # Digits no larger than MNIST's have no detail that could be redrawn.
    return Redrawn(drawn.ink, drawn.needed & (cell > LARGE))


def _fitted(ink: tf.Tensor) -> tf.Tensor:
    """Fits redrawn ink, float32 [n, n] from 0 to 1, into 28 x 28 pixels; see `_centred`."""
    size = ink.shape[0]

    def ink_in(cells: Cells) -> tf.Tensor:
        rows, _ = coverage(cells.top, cells.size, cells.number, size)
        columns, _ = coverage(cells.left, cells.size, cells.number, size)
        return rows @ ink @ tf.transpose(columns)

    whole = Rectangle(*map(float, (0, size, 0, size)))
    return _centred(ink_in, _box(ink, whole, EXACT))


def _centred(ink_in: Callable[[Cells], tf.Tensor], box: Rectangle) -> tf.Tensor:
    """Fits ink into 28 x 28 pixels as MNIST does: scaled by its box, centred by its mass."""
    cell = tf.maximum(box.longest, 1.0) / BOX
    # Cells start at the edge of the box, so that a digit of 20 pixels keeps its pixels; MNIST shifts by whole pixels.
    lower, further = _shift(ink_in(Cells(box.top, box.left, cell, BOX)))
    return ink_in(Cells(box.top - lower * cell, box.left - further * cell, cell, SIDE))


def _resampled(grey: tf.Tensor, part: Rectangle, cells: int) -> tf.Tensor:
    """Resamples a part of the image to a grid, [cells, cells]."""
    height, width = tf.unstack(tf.shape(grey))
    rows, _ = coverage(part.top, part.height / cells, cells, height)
    columns, _ = coverage(part.left, part.width / cells, cells, width)
    return rows @ grey @ tf.transpose(columns)


def _box(ink: tf.Tensor, part: Rectangle, least: tf.Tensor) -> Rectangle:
    """Bounding box of ink above `least`, rounded to whole pixels."""
    (top, bottom), (left, right) = (_ends(tf.reduce_max(ink, axis=axis) > least) for axis in (1, 0))
    cells = ink.shape[0]
    down, across = part.height / cells, part.width / cells
    edges = part.top + top * down, part.top + bottom * down, part.left + left * across, part.left + right * across
    return Rectangle(*(tf.round(edge) for edge in edges))


def _ends(inked: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last inked cell; all cells if none is inked."""
    at = tf.range(inked.shape[0], dtype=tf.float32)
    inked |= ~tf.reduce_any(inked)
    return tf.reduce_min(tf.where(inked, at, float(inked.shape[0]))), tf.reduce_max(tf.where(inked, at + 1, 0.0))


def _ink(grey: tf.Tensor, level: Paper, sign: tf.Tensor, cells: Cells) -> tf.Tensor:
    """Ink in square cells, [count, count]; none outside the image."""
    top, left, size, count = cells
    height, width = tf.unstack(tf.shape(grey))
    rows, in_rows = coverage(top, size, count, height)
    columns, in_columns = coverage(left, size, count, width)
    middle = (tf.range(count, dtype=tf.float32) + 0.5) * size
    blank = level.at(top + middle, left + middle)
    # These cells are larger than those in which the deviation was measured, and therefore deviate less.
    ink = tf.nn.relu(sign * (rows @ grey @ tf.transpose(columns) - blank) - NOISE / 2 * level.deviation)
    # Dark ink absorbs a share of the light on the paper; light ink adds its own.
    ink /= tf.where(sign < 0, tf.maximum(blank, 1.0), 255.0)
    return ink * in_rows[:, None] * in_columns[None]


def _shift(canvas: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Offset of the box in the 28 x 28 cells, in whole cells, that puts the centre of mass where MNIST has it."""
    at = tf.range(BOX, dtype=tf.float32) + 0.5
    mass = tf.maximum(tf.reduce_sum(canvas), 1e-6)
    y, x = tf.reduce_sum(canvas * at[:, None]) / mass, tf.reduce_sum(canvas * at[None]) / mass
    return tf.math.ceil(SIDE / 2 - y), tf.math.ceil(SIDE / 2 - x)
