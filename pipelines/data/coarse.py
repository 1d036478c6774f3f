"""Loss of sharpness: a batch of images is averaged over random grids of cells and scaled up again.

So come scans of few cells and photographs that are out of focus, while stored training images are all equally sharp.
"""

import numpy as np
import tensorflow as tf

from pipelines.data.images.resampling import coverage

# Sizes of cells, starts of the grid, and ways to scale up (blocks and smooth), which are equally likely.
SIZES, STARTS, WAYS = 9, 4, 2
DRAWS = 4
"""Random numbers per image."""


def coarse(images: tf.Tensor, largest: float, chance: tf.Tensor) -> tf.Tensor:
    """Replaces each image with one of lower resolution and the same size.

    Args:
        images: float32 [b, h, w, c].
        largest: side of the largest cells in pixels; the smallest are pixels, and leave an image unchanged.
        chance: uniform draws from [0, 1), float32 [b, 4].

    Returns:
        float32 [b, h, w, c].
    """
    height, width = images.shape[1:3]
    size, way, top, left = (
        tf.cast(chance[:, number] * count, tf.int32) for number, count in enumerate((SIZES, WAYS, STARTS, STARTS))
    )

    def drawn(length: int, start: tf.Tensor) -> tf.Tensor:
        return tf.gather(_resamplings(length, largest), (size * WAYS + way) * STARTS + start)

    images = tf.einsum("bij,bjkc->bikc", drawn(height, top), images)
    return tf.ensure_shape(tf.einsum("blk,bikc->bilc", drawn(width, left), images), images.shape)


def _resamplings(length: int, largest: float) -> np.ndarray:
    """Returns the matrices that average a row of pixels and scale it up again, float32 [sizes x ways x starts, n, n]."""
    pixels = np.arange(length) + 0.5
    blocks, smooth = [], []
    with tf.init_scope():
        for size in np.linspace(1, largest, SIZES):
            cells = np.arange(np.ceil(length / size) + 1)
            for start in -np.linspace(0, size - 1, STARTS):
                weights, inside = coverage(start, size, len(cells), length)
                means, middles = weights.numpy()[inside > 0], (start + (cells + 0.5) * size)[inside > 0]
                blocks.append(means[np.clip(((pixels - start) / size).astype(int), 0, len(means) - 1)])
                smooth.append(np.stack([np.interp(pixels, middles, column) for column in means.T], axis=1))
    stacked = np.stack([blocks, smooth]).reshape(WAYS, SIZES, STARTS, length, length)
    return np.moveaxis(stacked, 0, 1).reshape(-1, length, length).astype(np.float32)
