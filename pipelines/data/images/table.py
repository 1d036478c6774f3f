"""The table on which a sheet of paper lies, in a photograph that shows both.

A table is whatever differs from the paper and lies along the edge of the image. What it leaves of the image must look
like a sheet: convex, as large as a sheet and filled like a parallelogram, with sharp edges and mostly blank. The
strokes of a digit hardly ever do.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images.components import label, measure

# Cells per side of the grid on which tables are found.
SIDE = 56
# Largest difference of brightness from the paper, relative to the largest of all, its minimum, and noise relative to
# that of neighbouring cells.
NEAR, LEAST, NOISE = 0.12, 6.0, 3.0
# Least share of a table's outline that is on the edge of the image, and its length, in sides of the image.
BORDER, LONG = 0.3, 0.1
# Directions, within half a turn, in which a sheet is measured, and the least sine of the angle between two of them that
# span a parallelogram.
DIRECTIONS, SINE = 24, 0.4
# A sheet: its least area, relative to the image; its least width, in cells; and the share that it fills of its convex
# hull, and the hull of its parallelogram: an ellipse, such as a 0, fills 0.79.
AREA, WIDTH, CONVEX, FILLED = 0.1, 14.0, 0.935, 0.83
# Largest part of the table that is within the hull: all of a stroke along the edge of the image is.
DENTED = 0.45
# Share of the edge of the image from which on a sheet is cut, so that its shape and dents mean nothing.
CUT = 0.3
# Cells around a sheet in which a table differs from the paper by more than this many times what counts as different:
# shadows have no sharp edges.
REACH, SHARP = 3, 1.4
# Ink that touches the edge of a sheet belongs to the table's component: dents this many cells within the hull are ink.
WITHIN = 2
# Largest share of a sheet that is ink; and how much lighter than the sheet ink may be, relative to the table.
INKED, LIKE = 0.3, 0.3


class Hull(NamedTuple):
    """The convex hulls of masks, and the shares that they fill of their smallest parallelograms."""

    cells: tf.Tensor
    """float32 [maps, SIDE, SIDE], 0 or 1."""
    filled: tf.Tensor
    width: tf.Tensor
    """The least over all directions, in cells."""


def find(residual: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Finds the sheet, for each surface that may be its paper.

    Args:
        residual: brightness of cells relative to the paper, float32 [maps, SIDE, SIDE].

    Returns:
        The cells of the sheet, float32 [maps, SIDE, SIDE], 0 or 1; and whether it is a sheet with a table beyond it,
        bool [maps].
    """
    noise = tf.reduce_mean(tf.abs(residual[:, 1:, 1:] - residual[:, :-1, :-1]), axis=(1, 2), keepdims=True)
    away = tf.abs(residual)
    most = tf.reduce_max(tf.nn.avg_pool2d(away[..., None], 3, 1, "SAME")[..., 0], axis=(1, 2), keepdims=True)
    near = tf.maximum(tf.maximum(NEAR * most, NOISE * noise), LEAST)
    labels = label(away > near)
    found = measure(labels, 1 / SIDE, 1 / SIDE, 1)
    beyond = (found.border > BORDER * found.outline) & (found.border > LONG)
    labels = label(~tf.gather(beyond, labels))
    areas = tf.gather(measure(labels, 1 / SIDE, 1 / SIDE, 1).area, labels) * tf.cast(labels > 0, tf.float32)
    sheet = tf.cast(areas == tf.maximum(_most(areas), AREA), tf.float32)
    hull = _hull(sheet)
    dents = tf.nn.relu(-_around(-hull.cells, WITHIN) - sheet)
    # A mask of the edge as a constant would take 13 kB in each exported graph.
    cut = _sum(sheet[:, :: SIDE - 1]) + _sum(sheet[:, :, :: SIDE - 1]) > CUT * 4 * SIDE
    whole = sheet + dents * tf.cast(~cut, tf.float32)[:, None, None]
    rim = (1 - whole) * (_around(whole, REACH) - _around(whole, 1))
    is_sharp = _sum(rim * away) > SHARP * near[:, 0, 0] * _sum(rim)
    area = _sum(sheet)
    ink = whole * tf.cast(away > near, tf.float32)
    # A thick 8 may be shaped like a sheet, with holes as light as the paper, which would be the table.
    surface, inside = (
        _sum(rim * residual) / tf.maximum(_sum(rim), 1.0),
        _sum(ink * residual) / tf.maximum(_sum(ink), 1.0),
    )
    has_holes = (surface > 0) & (inside > LIKE * surface)
    is_blank = ~has_holes & (_sum(ink) < INKED * area)
    lacking = _sum(hull.cells) - area
    is_convex = (lacking < (1 - CONVEX) * _sum(hull.cells)) & (lacking < DENTED * (SIDE**2 - area))
    is_shaped = is_convex & (hull.width > WIDTH) & (cut | (hull.filled > FILLED))
    return whole, is_shaped & is_sharp & is_blank


def _hull(mask: tf.Tensor) -> Hull:
    """Finds convex hulls, as polygons whose sides have one of `DIRECTIONS` directions each."""
    at = np.arange(SIDE, dtype=np.float32)
    angles = np.arange(DIRECTIONS, dtype=np.float32) * np.float32(np.pi / DIRECTIONS)
    down, across = np.cos(angles)[:, None], np.sin(angles)[:, None]
    # Of each row, the first and the last cell; none of an empty row.
    last = tf.reduce_max(mask * (at + 1), axis=2)[:, None] - 1
    first = SIDE - tf.reduce_max(mask * (SIDE - at), axis=2)[:, None]
    empty = tf.where(last < 0, 1e6, 0.0)
    most = tf.reduce_max(down * at + across * last - empty, axis=2)[..., None]
    least = tf.reduce_min(down * at + across * first + empty, axis=2)[..., None]
    # The row itself is bounded by the first direction, which is straight down.
    right = tf.reduce_min((most[:, 1:] - down[1:] * at) / across[1:], axis=1)
    left = tf.reduce_max((least[:, 1:] - down[1:] * at) / across[1:], axis=1)
    rows = (at <= most[:, 0] + 0.1) & (at >= least[:, 0] - 0.1)
    cells = (at < right[..., None] + 0.1) & (at > left[..., None] - 0.1) & rows[..., None]
    hull = tf.cast(cells, tf.float32)
    extent = (most - least)[..., 0] + 1
    sine = np.abs(np.sin(angles[:, None] - angles))
    spans = np.where(sine < SINE, 1e6, 1 / np.maximum(sine, SINE)).astype(np.float32)
    parallelogram = tf.reduce_min(extent[:, None] * extent[:, :, None] * spans, axis=(1, 2))
    return Hull(hull, _sum(hull) / parallelogram, tf.reduce_min(extent, axis=1))


def _around(mask: tf.Tensor, cells: int) -> tf.Tensor:
    return tf.nn.max_pool2d(mask[..., None], 2 * cells + 1, 1, "SAME")[..., 0]


def _sum(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_sum(values, axis=(1, 2))


def _most(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(values, axis=(1, 2), keepdims=True)
