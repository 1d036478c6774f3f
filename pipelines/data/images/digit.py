"""A written digit, dark on light or light on dark, of any size and place, as MNIST would have stored it.

MNIST scales the digit into a box of 20 x 20 pixels, aspect kept, and moves its centre of mass into the middle of
28 x 28 (LeCun, Bottou, Bengio and Haffner 1998, section III.A); in its files that is the pixel after the middle. Here
the paper is found first, as a plane of brightness through the edge of the picture; ink is what lies far from it.
"""

from typing import Any, NamedTuple

import tensorflow as tf

from pipelines.data.images.cells import coverage

SIDE, BOX = 28, 20
# The brightest pixel that the black edge of a stored digit may have.
BLACK = 64.0
# Cells along a side of the grids in which the digit is looked for and its box is measured, and the share of a side that
# is taken for paper at each edge.
LOOK, MEASURE, RING = 112, 280, 0.05
# Share of the strongest ink that counts as ink: when looking for the digit, for its box, and for that on grainy paper.
ROUGH, EXACT, HALF = 0.3, 0.06, 0.35
# Cells of both grids that are thinner than a stroke.
STROKE = 7
# Room around the digit in the second look, in parts of its longest side.
MARGIN = 0.25
# Deviations of the paper that do not count as ink.
NOISE = 3.5
ROUNDS = 8
# Ink that is fainter than this share of the light is not made black.
FAINT = 0.02


class Part(NamedTuple):
    """A rectangle of a picture, in pixels, float32 scalars."""

    top: tf.Tensor
    bottom: tf.Tensor
    left: tf.Tensor
    right: tf.Tensor

    @property
    def longest(self) -> tf.Tensor:
        """The longer side."""
        return tf.maximum(self.bottom - self.top, self.right - self.left)


class Cells(NamedTuple):
    """A grid of square cells over a picture, in pixels."""

    top: tf.Tensor
    left: tf.Tensor
    size: tf.Tensor
    number: int
    """Along each side."""


class Paper(NamedTuple):
    """Brightness of the paper as a plane over the picture, and how much cells stray from it: float32 scalars."""

    level: tf.Tensor
    down: tf.Tensor
    across: tf.Tensor
    deviation: tf.Tensor

    def at(self, y: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
        """Brightness [n, m] in rows y [n] and columns x [m], in pixels."""
        return self.level + self.down * y[:, None] + self.across * x[None]


def digit(grey: tf.Tensor) -> tf.Tensor:
    """Finds the digit, takes the paper away, and puts it into 28 x 28 pixels.

    Args:
        grey: float32 [h, w], 0 to 255.

    Returns:
        float32 [28, 28], whole numbers from 0 (paper) to 255 (ink). A picture of 28 x 28 with a black edge is given
        back as it is.
    """
    edge = tf.reduce_max(tf.stack([tf.reduce_max(line) for line in (grey[0], grey[-1], grey[:, 0], grey[:, -1])]))
    stored = tf.reduce_all(tf.shape(grey) == SIDE) & (edge < BLACK)
    return tf.ensure_shape(tf.cond(stored, lambda: tf.round(grey), lambda: _written(grey)), (SIDE, SIDE))


def _written(grey: tf.Tensor) -> tf.Tensor:
    height, width = (tf.cast(size, tf.float32) for size in tf.unstack(tf.shape(grey)))
    whole = Part(tf.zeros(()), height, tf.zeros(()), width)
    _, rest = _paper(_seen(grey, whole, LOOK), whole)
    # Ink is little, and far from the paper.
    sign = tf.where(tf.reduce_sum(rest**3) < 0, -1.0, 1.0)
    ink = tf.nn.relu(sign * rest)
    near = _box(ink, whole, ROUGH * tf.reduce_max(ink))
    room = MARGIN * near.longest
    part = Part(
        tf.maximum(near.top - room, 0.0),
        tf.minimum(near.bottom + room, height),
        tf.maximum(near.left - room, 0.0),
        tf.minimum(near.right + room, width),
    )
    seen = _seen(grey, part, MEASURE)
    paper, rest = _paper(seen, part)
    ink = sign * rest
    least = EXACT * tf.reduce_max(ink)
    sharp = _box(ink, part, least)
    # Where the paper is grainy, ink ends halfway between it and the stroke, and what is thinner than a stroke is grain.
    grainy = NOISE * _grain(rest) > least
    ink = tf.nn.avg_pool2d(ink[None, ..., None], STROKE, 1, "SAME")[0, ..., 0]
    soft = _box(ink, part, tf.maximum(HALF * tf.reduce_max(ink), NOISE * paper.deviation))
    box = Part(*(tf.where(grainy, *edges) for edges in zip(soft, sharp, strict=True)))
    cell = tf.maximum(box.longest, 1.0) / BOX

    def drawn(top: tf.Tensor, left: tf.Tensor, count: int) -> tf.Tensor:
        return _drawn(grey, paper, sign, Cells(top, left, cell, count))

    # Cells begin at the edge of the box, so that a digit of 20 pixels keeps its pixels; MNIST moves it by whole ones.
    down, across = _shift(drawn(box.top, box.left, BOX))
    canvas = drawn(box.top - down * cell, box.left - across * cell, SIDE)
    return tf.round(255 * canvas / tf.maximum(tf.reduce_max(canvas), FAINT))


def _seen(grey: tf.Tensor, part: Part, cells: int) -> tf.Tensor:
    """A part of the picture in a grid of cells, [cells, cells]."""
    rows, _ = coverage(part.top, (part.bottom - part.top) / cells, cells, tf.shape(grey)[0])
    columns, _ = coverage(part.left, (part.right - part.left) / cells, cells, tf.shape(grey)[1])
    return rows @ grey @ tf.transpose(columns)


def _paper(seen: tf.Tensor, part: Part) -> tuple[Paper, tf.Tensor]:
    """The plane through the ring along the edge, and what is left of all cells without it.

    Least squares again and again, each time with what strays from the last plane cut back: ink in the ring has no say.
    """
    coarse = tf.nn.avg_pool2d(seen[None, ..., None], STROKE, STROKE, "VALID")[0, ..., 0]
    y, x = _places(coarse.shape[0])
    ring = _ring(coarse.shape[0])
    # The ring is symmetric: level and both slopes are found apart from each other.
    count, square = tf.reduce_sum(ring), tf.reduce_sum(ring * y**2)

    def nearer(number: Any, plane: tf.Tensor, deviation: tf.Tensor) -> tuple[Any, ...]:
        rest = coarse - (plane[0] + plane[1] * y + plane[2] * x)
        cut = ring * tf.clip_by_value(rest, -1.5 * deviation, 1.5 * deviation)
        plane += [tf.reduce_sum(cut) / count, tf.reduce_sum(cut * y) / square, tf.reduce_sum(cut * x) / square]
        rest = coarse - (plane[0] + plane[1] * y + plane[2] * x)
        return number + 1, plane, _deviation(rest, ring, 3 * deviation)

    # A loop and not one round after the other: tf2onnx takes ten seconds for a graph that is twice as large.
    start = (0, tf.zeros(3), tf.constant(1e6))
    _, plane, deviation = tf.while_loop(lambda number, *_: number < ROUNDS, nearer, start, maximum_iterations=ROUNDS)
    level, down, across = tf.unstack(plane)
    y, x = _places(seen.shape[0])
    rest = seen - (level + down * y + across * x)
    # From -1 to 1 over the part, to pixels of the picture.
    down, across = 2 * down / (part.bottom - part.top), 2 * across / (part.right - part.left)
    level -= down * (part.top + part.bottom) / 2 + across * (part.left + part.right) / 2
    return Paper(level, down, across, deviation), rest


def _grain(rest: tf.Tensor) -> tf.Tensor:
    """How much single cells of the paper stray."""
    ring = _ring(rest.shape[0])
    return _deviation(rest, ring, 3 * _deviation(rest, ring, tf.constant(1e6)))


def _deviation(rest: tf.Tensor, ring: tf.Tensor, most: tf.Tensor) -> tf.Tensor:
    # Of a normal distribution the mean distance is 0.8 deviations.
    return 1.25 * tf.reduce_sum(ring * tf.minimum(tf.abs(rest), most)) / tf.reduce_sum(ring)


def _places(cells: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Middles of cells from -1 to 1, down and across."""
    at = (tf.range(cells, dtype=tf.float32) + 0.5) / cells * 2 - 1
    return at[:, None], at[None]


def _ring(cells: int) -> tf.Tensor:
    y, x = _places(cells)
    return tf.cast(tf.maximum(tf.abs(y), tf.abs(x)) > 1 - 2 * RING, tf.float32)


def _box(ink: tf.Tensor, part: Part, least: tf.Tensor) -> Part:
    """What has more ink than `least`, from pixel to pixel: ink begins where a pixel does."""
    (top, bottom), (left, right) = (_ends(tf.reduce_max(ink, axis=axis) > least) for axis in (1, 0))
    cells = ink.shape[0]
    down, across = (part.bottom - part.top) / cells, (part.right - part.left) / cells
    edges = part.top + top * down, part.top + bottom * down, part.left + left * across, part.left + right * across
    return Part(*(tf.round(edge) for edge in edges))


def _ends(inked: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """First and last of the cells that are inked; all of them if none is."""
    at = tf.range(inked.shape[0], dtype=tf.float32)
    inked |= ~tf.reduce_any(inked)
    return tf.reduce_min(tf.where(inked, at, float(inked.shape[0]))), tf.reduce_max(tf.where(inked, at + 1, 0.0))


def _drawn(grey: tf.Tensor, paper: Paper, sign: tf.Tensor, cells: Cells) -> tf.Tensor:
    """Ink in square cells, [count, count]; outside of the picture there is none."""
    top, left, size, count = cells
    rows, in_rows = coverage(top, size, count, tf.shape(grey)[0])
    columns, in_columns = coverage(left, size, count, tf.shape(grey)[1])
    middle = (tf.range(count, dtype=tf.float32) + 0.5) * size
    blank = paper.at(top + middle, left + middle)
    # Cells here are larger than what the paper's deviation was measured over, and stray less.
    ink = tf.nn.relu(sign * (rows @ grey @ tf.transpose(columns) - blank) - NOISE / 2 * paper.deviation)
    # Dark ink keeps a share of the light that falls on the paper from coming back; light ink shines by itself.
    ink /= tf.where(sign < 0, tf.maximum(blank, 1.0), 255.0)
    return ink * in_rows[:, None] * in_columns[None]


def _shift(canvas: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Whole cells between the edges of the 28 x 28 and of the box, so that the centre of mass is where MNIST has it."""
    at = tf.range(BOX, dtype=tf.float32) + 0.5
    mass = tf.maximum(tf.reduce_sum(canvas), 1e-6)
    y, x = tf.reduce_sum(canvas * at[:, None]) / mass, tf.reduce_sum(canvas * at[None]) / mass
    return tf.math.ceil(SIDE / 2 - y), tf.math.ceil(SIDE / 2 - x)
