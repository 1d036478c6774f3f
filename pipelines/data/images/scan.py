"""Coarse scans: digits of 8 x 8 cells, scaled up, whose strokes are redrawn as sharp as those of MNIST.

The cells are larger than strokes are wide, but their grey levels say how much ink is in each. An image is such a scan
if 8 x 8 cells explain it, as blocks or interpolated: their levels are fitted by least squares, and hardly anything
remains. Of other digits, even those of a marker, such cells leave several times more.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Cells of a scan along a side, and parts of a cell in which strokes are redrawn.
CELLS, PARTS = 8, 21
# Largest share of the variance of the brightness that may remain, and the least variance of an image with ink.
REST, LEAST = 0.03, 4.0
# Rounds of redrawing, and the factor by which each raises the contrast, with one half unchanged.
ROUNDS, CONTRAST = 2, 1.5
# Cells of paper around the scan, whose ink is 0.
PAPER = 4


class Scan(NamedTuple):
    """An image as a scan."""

    ink: tf.Tensor
    """Share of ink in each cell, float32 [CELLS, CELLS]: 0 in the emptiest cell, 1 in the fullest."""
    found: tf.Tensor
    """True if the image is a scan; bool scalar."""


def fit(grid: tf.Tensor) -> Scan:
    """Fits the cells of a scan to an image.

    Args:
        grid: brightness of the whole image, float32 [n, n], for n a multiple of `CELLS`.
    """
    size = grid.shape[0] // CELLS
    away = grid - tf.reduce_mean(grid)
    total = tf.reduce_sum(away**2)
    fitted = []
    for weights in (np.repeat(np.eye(CELLS), size, axis=0), _interpolation(CELLS, size)):
        columns, scale = np.linalg.qr(weights)
        # One constant each: a graph stores NumPy arrays wherever they are used.
        basis, inverse = tf.constant(columns, tf.float32), tf.constant(np.linalg.inv(scale), tf.float32)
        values = tf.matmul(basis, away, transpose_a=True) @ basis
        fitted.append((inverse @ values @ tf.transpose(inverse), total - tf.reduce_sum(values**2)))
    (blocks, sharp), (smooth, soft) = fitted
    found = (tf.minimum(sharp, soft) < REST * total) & (total > LEAST * (CELLS * size) ** 2)
    return Scan(_ink(tf.where(sharp < soft, blocks, smooth)), found)


def _ink(cells: tf.Tensor) -> tf.Tensor:
    least, most = tf.reduce_min(cells), tf.reduce_max(cells)
    share = (cells - least) / tf.maximum(most - least, 1e-6)
    # Digits fill a scan and may cover most of it, but not its corners.
    light = tf.reduce_mean(share[:: CELLS - 1, :: CELLS - 1]) > 0.5
    return tf.where(light, 1 - share, share)


def redraw(ink: tf.Tensor) -> tf.Tensor:
    """Redraws strokes in parts of cells: interpolates, then by turns raises the contrast and restores the ink of cells.

    Args:
        ink: share of each cell that is ink, float32 [CELLS, CELLS].

    Returns:
        float32 [CELLS * PARTS, CELLS * PARTS], from 0 to 1.
    """
    weights = tf.constant(_preserving())

    def drawn(cells: tf.Tensor) -> tf.Tensor:
        return tf.matmul(weights @ cells, weights, transpose_b=True)

    strokes = tf.clip_by_value(drawn(ink), 0, 1)
    for _ in range(ROUNDS):
        strokes = tf.clip_by_value(CONTRAST * strokes - (CONTRAST - 1) / 2, 0, 1)
        missing = ink - tf.nn.avg_pool2d(strokes[None, ..., None], PARTS, PARTS, "VALID")[0, ..., 0]
        strokes = tf.clip_by_value(strokes + drawn(missing), 0, 1)
    return strokes


def _preserving() -> np.ndarray:
    """Computes the weights [CELLS * PARTS, CELLS] of an interpolation that preserves the mean of each cell."""
    count = CELLS + 2 * PAPER
    weights = _interpolation(count, PARTS)
    means = weights.reshape(count, PARTS, count).mean(axis=1)
    inner = slice(PAPER * PARTS, -PAPER * PARTS)
    return (weights @ np.linalg.inv(means))[inner, PAPER:-PAPER].astype(np.float32)


def _interpolation(cells: int, size: int) -> np.ndarray:
    """Computes the weights [cells * size, cells] of bicubic interpolation, as in Pillow (Keys 1981, a = -0.5)."""
    at = (np.arange(cells * size) + 0.5) / size
    distance = np.abs(at[:, None] - (np.arange(cells) + 0.5))
    near, far = np.polyval((1.5, -2.5, 0, 1), distance), np.polyval((-0.5, 2.5, -4, 2), distance)
    weights = np.where(distance < 1, near, np.where(distance < 2, far, 0.0))
    return weights / weights.sum(axis=1, keepdims=True)
