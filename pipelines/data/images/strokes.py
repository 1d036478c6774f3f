"""Separates the strokes of digits from everything else in an image: the edge of a table, frames, lines, specks."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images.components import Components, label, measure
from pipelines.data.images.paper import NOISE
from pipelines.data.images.rectangle import Rectangle
from pipelines.data.images.resampling import repeated
from serving.manifest import MOST_DIGITS

# Least deviation from the paper, relative to the strongest, of cells that belong to a component, and of cells that
# belong to the box of the digit: the surroundings of the paper may deviate more than the ink.
FAINT, ROUGH = 0.15, 0.3
# Smallest difference of brightness from the paper that can be a stroke.
CONTRAST = 4.0
# A component with more than this share of its outline on the edge of the image shows the surroundings of the paper:
# strokes touch the edge with their ends only.
BORDER = 0.35
# Side of the coarse cells in which the surroundings are found, in cells.
COARSE = 2
# Change of brightness over a number of coarse cells, relative to the strongest ink, that strokes exceed.
EDGE, STEEP = 2, 0.2
# Smallest side of a digit, relative to the shorter side of the image, as digits may be in a row or in a column; to the
# longer side, along which the grid is coarser; and to the largest digit.
LEAST, SEEN, SIMILAR = 0.1, 0.025, 0.5
# Longest side of a speck, and of a round one, relative to the largest digit.
SPECK, SPOT = 0.2, 0.4
# Largest width of a line, relative to the side of its frame; and of a stroke, relative to its digit: blots are wider.
LINE, BLOT = 0.15, 0.31
# A line of more than this share of a side crosses the image; a strip with more than this share of its length on a side
# lies along it.
ACROSS = 0.95
# Images that are narrower, relative to their longer side, may be cropped to a 1.
SLIM = 0.35
# Least mean of ink, relative to the strongest, that may be a table alone: a digit in a shadow is darker than that.
EVEN = 0.7
# Smallest side of a digit in a frame, relative to the frame's side.
INSIDE = 0.25
# Gap between two digits, relative to the larger.
GAP = 0.04
# Maximum number of components examined, the largest first: each may be a digit.
MOST = MOST_DIGITS
# Margins, in cells, around components that are not strokes, and around strokes.
MARGIN, NEAR = 2, 5


class Strokes(NamedTuple):
    """The strokes of an image, on a grid of cells."""

    sign: tf.Tensor
    """1 if ink is lighter than the paper, else -1."""
    ink: tf.Tensor
    """Contrast of stroke cells with the paper, float32 [n, n]; 0 elsewhere."""
    other: tf.Tensor
    """Mask of cells away from all strokes, float32 [n, n], 0 or 1; all 0 if every inked cell belongs to a stroke."""
    blank: tf.Tensor
    """Mask of cells that show blank paper, float32 [n, n], 0 or 1."""
    boxes: tf.Tensor
    """Top, bottom, left and right of each digit from left to right, float32 [digits, 4], from 0 to 1."""


def find(
    residual: tf.Tensor,
    deviation: tf.Tensor,
    height: tf.Tensor,
    width: tf.Tensor,
    *,
    filled: tf.Tensor,
    table: tf.Tensor,
) -> Strokes:
    """Finds the strokes.

    If nothing is a digit, all ink counts as strokes, and there are no boxes.

    Args:
        residual: brightness of cells relative to the paper, float32 [n, n].
        deviation: standard deviation of cells of blank paper.
        height: height of the image.
        width: its width.
        filled: whether a digit is known to fill the image; bool scalar.
        table: cells that show the table on which the paper lies, float32 [n, n], 0 or 1.

    Returns:
        The strokes.
    """
    longest = tf.maximum(height, width)
    least = tf.maximum(LEAST * tf.minimum(height, width) / longest, SEEN)
    cell = height / longest / residual.shape[0], width / longest / residual.shape[1]
    residual = residual * (1 - table)
    coarse = tf.nn.avg_pool2d(residual[None, ..., None], COARSE, COARSE, "VALID")[0, ..., 0]
    cells = COARSE * cell[0], COARSE * cell[1]
    on_table = tf.reduce_max(table) > 0
    around = _surroundings(tf.nn.relu(tf.stack([-coarse, coarse])), deviation, cells, least, on_table)
    around = tf.maximum(around, table)
    rest = residual * (1 - around)
    # Ink covers little area but deviates far, so that the cubes show its sign.
    sign = tf.where(tf.reduce_sum(rest**3) < 0, -1.0, 1.0)
    ink = tf.nn.relu(sign * rest)
    most = tf.reduce_max(ink)
    labels = label((ink > tf.maximum(FAINT * most, tf.maximum(CONTRAST, NOISE * deviation)))[None])
    every = measure(labels, *cell, MOST)
    largest, places = tf.math.top_k(every.area[1:], MOST)
    some = every.rows(places + 1)
    inked = tf.cast(labels[0] > 0, tf.float32)
    even = tf.reduce_sum(inked * ink) > EVEN * most * tf.reduce_sum(inked)
    sides, blank = (height / longest, width / longest), even & ~filled
    digit, kept = _sorted(some, *sides, least, cells=residual.shape[0], blank=blank, on_table=on_table)
    digit &= _has_edges(coarse) | filled
    chosen = tf.scatter_nd(places[:, None] + 1, tf.cast(kept & (largest > 0), tf.float32), tf.shape(every.area))
    # Without digits, no component is left out.
    chosen = tf.where(tf.reduce_any(digit), chosen, tf.ones_like(chosen))
    stroke = tf.gather(chosen, labels[0]) * tf.cast(labels[0] > 0, tf.float32)
    dropped = tf.cast(labels[0] > 0, tf.float32) - stroke
    # Faint ends are dropped along with their component.
    far = tf.maximum(1 - _dilated(stroke, NEAR), dropped) * tf.reduce_max(dropped)
    other = tf.maximum(far, around)
    blank = 1 - tf.maximum(_dilated(tf.cast(labels[0] > 0, tf.float32), MARGIN), around)
    ink *= (1 - other) * tf.cast(ink > ROUGH * most, tf.float32)
    return Strokes(sign, ink, other, blank, _boxes(some.box, digit, height / longest, width / longest))


def _surroundings(
    maps: tf.Tensor, deviation: tf.Tensor, cell: tuple[tf.Tensor, tf.Tensor], least: tf.Tensor, on_table: tf.Tensor
) -> tf.Tensor:
    """Finds the surroundings of the paper, darker [0] and lighter [1] ones, in coarse cells: float32 [n, n], 0 or 1."""
    labels = label(maps > tf.maximum(FAINT * tf.reduce_max(maps), tf.maximum(CONTRAST, NOISE * deviation)))
    found = measure(labels, *cell, MOST)
    edge = found.border > BORDER * found.outline
    digits = ~edge & (found.box.longest > least) & (found.area > least**2 / 4)
    edge &= tf.reduce_any(digits) | on_table
    cells = tf.gather(tf.cast(edge, tf.float32), labels)
    found = tf.reduce_max(cells, axis=0)
    return _dilated(repeated(found, COARSE), MARGIN)


def _sorted(
    found: Components,
    height: tf.Tensor,
    width: tf.Tensor,
    least: tf.Tensor,
    *,
    cells: int,
    blank: tf.Tensor,
    on_table: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns which components are separate digits, and which are strokes of any digit: bool [n] each.

    Args:
        found: components, the largest first.
        height: height of the image, in the same unit.
        width: its width.
        least: smallest side of a digit.
        cells: number of cells along each side.
        blank: whether the paper may be blank, so that all that shows is a table.
        on_table: whether a table was found, of which a strip may be left.
    """
    box = found.box
    top, bottom, left, right = (side[:, None] for side in box)
    longest = box.longest
    stroke = 2 * found.area / tf.maximum(found.outline, 1e-6)
    # Along the longer side of the image, where cells are longer, a box is larger than a dot of few cells in it, which
    # would then seem thin.
    excess = (width - height) / cells
    thin = stroke < BLOT * tf.maximum(box.height - tf.nn.relu(-excess), box.width - tf.nn.relu(excess))
    large = (found.area > 0) & (longest > least) & thin
    inside = (top < box.top) & (bottom > box.bottom) & (left < box.left) & (right > box.right)
    holds = tf.reduce_any(inside & large & (longest > INSIDE * longest[:, None]), axis=1)
    spans = (box.height > ACROSS * height) | (box.width > ACROSS * width)
    narrow = tf.minimum(box.height, box.width) < LINE * longest
    frame = large & ((holds & (stroke < LINE * longest)) | (spans & narrow))
    strip = found.border > BORDER * found.outline
    candidates = large & ~frame & ~strip
    # Without others, a strip may be a stroke, such as a 1 to which an image is cropped, but not the edge of a table.
    table = strip & (found.side > ACROSS * longest) & (tf.minimum(height, width) > SLIM * tf.maximum(height, width))
    candidates = tf.where(tf.reduce_any(candidates), candidates, large & ~((table & blank) | (strip & on_table)))
    most = tf.reduce_max(tf.where(candidates, longest, 0.0))
    gaps = tf.maximum(tf.maximum(top - box.bottom, box.top - bottom), tf.maximum(left - box.right, box.left - right))
    speck = longest < tf.where(thin, SPECK, SPOT) * most
    kept = candidates | ~(frame | strip | speck)
    whole = candidates & (longest > SIMILAR * most)
    # A component is a separate digit if there is a gap between it and each larger one.
    larger = np.tri(MOST, k=-1, dtype=bool)
    joined = tf.reduce_any(larger & whole & (gaps < GAP * most), axis=1)
    return whole & ~joined, kept


def _has_edges(coarse: tf.Tensor) -> tf.Tensor:
    """Returns whether brightness changes as fast as at a stroke; uneven light alone does not."""
    down, across = coarse[EDGE:] - coarse[:-EDGE], coarse[:, EDGE:] - coarse[:, :-EDGE]
    steepest = tf.maximum(tf.reduce_max(tf.abs(down)), tf.reduce_max(tf.abs(across)))
    return steepest > STEEP * tf.reduce_max(tf.abs(coarse))


def _boxes(found: Rectangle, digit: tf.Tensor, height: tf.Tensor, width: tf.Tensor) -> tf.Tensor:
    shares = (found.top / height, found.bottom / height, found.left / width, found.right / width)
    _, order = tf.math.top_k(-tf.where(digit, found.left, 1e9), MOST)
    return tf.gather(tf.stack(shares, axis=1), order[: tf.reduce_sum(tf.cast(digit, tf.int32))])


def _dilated(mask: tf.Tensor, cells: int) -> tf.Tensor:
    return tf.nn.max_pool2d(mask[None, ..., None], 2 * cells + 1, 1, "SAME")[0, ..., 0]
