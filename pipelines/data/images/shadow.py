"""Soft shadows on paper, and any other uneven light that no plane of brightness follows: found, and lifted."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from pipelines.data.images.resampling import repeated

# Cells per side of the grid on which light is measured.
SIDE = 56
# Side of the window of the closing, in these cells: wider than the strokes of a digit that fills the image. Side of the
# square whose paper takes the place of ink; it reaches paper from within blots, too.
WINDOW, REACH = 13, 25
# Brightness relative to that of the closing below which a cell has ink.
INK = 0.9
# Least share of cells without ink; noise has hardly any.
LEAST = 0.2
# Number of planes that are fitted: first to the closing, then to light without ink.
FITS = 2
# Least deviation of the light from a plane, relative to the brightest, that counts as a shadow; and the least light in
# a shadow: tables are often darker.
DEEP, DARKEST = 0.08, 0.35
# Largest change of light over a number of cells in a soft shadow, relative to its whole range, and to that of its
# deviation from a plane: tables have edges.
CELLS, SOFT, STEEP = 2, 0.4, 0.5


class Shadow(NamedTuple):
    """Light that is missing on the paper."""

    gain: tf.Tensor
    """Factor that makes each cell look as in the brightest light, float32 [n, n]."""
    found: tf.Tensor
    """True if there is a soft shadow; bool scalar."""


def measure(grid: tf.Tensor) -> Shadow:
    """Measures the light on paper with darker ink.

    Args:
        grid: brightness of cells, float32 [cells, cells], for a multiple of `SIDE`.
    """
    share = grid.shape[0] // SIDE
    light, blank = _bridged(tf.nn.avg_pool2d(grid[None, ..., None], share, share, "VALID"))
    most, extent, uneven = tf.reduce_max(light), _range(light), light - _plane(light)
    deep = (_range(uneven) > DEEP * most) & (most - extent > DARKEST * most)
    soft = (_steepest(light) < SOFT * extent) & (_steepest(uneven) < STEEP * _range(uneven))
    return Shadow(most / tf.maximum(light, 1.0), deep & soft & (blank > LEAST))


def lift(grey: tf.Tensor, gain: tf.Tensor) -> tf.Tensor:
    """Multiplies each pixel by the gain at its place, interpolated between cells.

    Args:
        grey: float32 [h, w].
        gain: float32 [n, n].
    """
    rows, columns = (_between(size, gain.shape[0]) for size in tf.unstack(tf.shape(grey)))
    return grey * (rows @ gain @ tf.transpose(columns))


def spread(gain: tf.Tensor, cells: int) -> tf.Tensor:
    """Spreads gains over smaller cells: [cells, cells] from [n, n].

    The graph is far smaller with repeated and averaged cells than with interpolated ones.
    """
    return _mean(repeated(gain, cells // gain.shape[0])[None, ..., None], 3)[0, ..., 0]


def _bridged(cells: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Replaces strokes by the paper around them, [n, n]; also returns the share of cells without ink.

    A closing finds whatever is darker than its surroundings and narrower than the window. Where light changes, what it
    puts in the place of ink is the darker paper. The mean of the paper around is nearer, and exact where light deviates
    from a plane by a constant.
    """
    closed = -_largest(-_largest(_extended(cells)))
    ink = tf.nn.max_pool2d(tf.cast(cells < INK * closed, tf.float32), 3, 1, "SAME")
    share = _mean(1 - ink, REACH)

    def filled(light: tf.Tensor) -> tf.Tensor:
        return tf.where((ink > 0) & (share > 0), _mean((1 - ink) * light, REACH) / tf.maximum(share, 1e-6), light)

    light = closed
    for _ in range(FITS):
        plane = _plane(light[0, ..., 0])[None, ..., None]
        light = plane + filled(closed - plane)
    return _mean(light, 3)[0, ..., 0], 1 - tf.reduce_mean(ink)


def _extended(cells: tf.Tensor) -> tf.Tensor:
    """Adds what two windows need beyond the edges: light that falls towards an edge goes on falling there."""
    places = np.arange(1 - WINDOW, SIDE + WINDOW - 1)
    nearest = places.clip(0, SIDE - 1)
    for axis in (1, 2):
        edge, within = (tf.gather(cells, at, axis=axis) for at in (nearest, 2 * nearest - places))
        cells = edge - tf.nn.relu(within - edge)
    return cells


def _largest(cells: tf.Tensor) -> tf.Tensor:
    """Takes the maximum over each window; one axis after the other is faster."""
    return tf.nn.max_pool2d(tf.nn.max_pool2d(cells, (WINDOW, 1), 1, "VALID"), (1, WINDOW), 1, "VALID")


def _range(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_max(values) - tf.reduce_min(values)


def _steepest(light: tf.Tensor) -> tf.Tensor:
    """Computes the largest change over `CELLS` cells."""
    down, across = light[CELLS:] - light[:-CELLS], light[:, CELLS:] - light[:, :-CELLS]
    return tf.maximum(tf.reduce_max(tf.abs(down)), tf.reduce_max(tf.abs(across)))


def _mean(cells: tf.Tensor, side: int) -> tf.Tensor:
    """Takes the mean over the square around each cell."""
    return tf.nn.avg_pool2d(cells, side, 1, "SAME")


def _plane(light: tf.Tensor) -> tf.Tensor:
    """Fits the least-squares plane, [n, n], without its mean."""
    at = np.linspace(-1, 1, SIDE, dtype=np.float32)
    down, across, norm = at[:, None], at[None], SIDE * float(np.sum(at**2))
    return tf.reduce_sum(light * down) / norm * down + tf.reduce_sum(light * across) / norm * across


def _between(size: tf.Tensor, cells: int) -> tf.Tensor:
    """Weights that interpolate linearly between the centres of cells, float32 [size, cells]."""
    pixels = tf.cast(size, tf.float32)
    place = tf.clip_by_value((tf.range(pixels) + 0.5) * (cells / pixels) - 0.5, 0.0, cells - 1.0)
    return tf.nn.relu(1 - tf.abs(place[:, None] - tf.range(cells, dtype=tf.float32)))
