"""Cutout, mixup and CutMix of a batch of images.

Each image is mixed with its neighbour in the batch: images 0 and 1 with each other, 2 and 3, and so on. The order of
the examples is random, so neighbours are random pairs, and a host needs no images from other hosts.
"""

import tensorflow as tf

from pipelines.core.config import Augment
from pipelines.data.warp import height_and_width


def erased(images: tf.Tensor, side: int, chance: tf.Tensor) -> tf.Tensor:
    """Erases a square of each image around a random pixel; it may reach over the edge.

    Args:
        images: float32 [b, h, w, c].
        side: side of the square in pixels.
        chance: uniform draws from [0, 1), float32 [b, 2].

    Returns:
        float32 [b, h, w, c], 0 in the squares.

    Reference:
        DeVries, Taylor 2017, arXiv 1708.04552.
    """
    start = tf.floor(chance * height_and_width(images)) - side // 2
    return tf.where(_boxes(images, start, start + side), 0.0, images)


def shares(count: int | tf.Tensor, alpha: float, seed: tf.Tensor) -> tf.Tensor:
    """Draws the share that each image keeps of itself, float32 [b], from Beta(alpha, alpha)."""
    one, other = tf.unstack(tf.random.stateless_gamma([2, count], seed, alpha))
    # Both draws underflow for a tiny alpha, whose shares are near 0 or 1.
    return tf.math.divide_no_nan(one, one + other)


def mixed(
    images: tf.Tensor, targets: tf.Tensor, settings: Augment, kept: tf.Tensor, chance: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Mixes each image and its target with those of its neighbour.

    Args:
        images: float32 [b, h, w, c].
        targets: float32 [b, classes].
        settings: mixup or cutmix.
        kept: the result of `shares`, [b].
        chance: uniform draws from [0, 1) for the centres of rectangles, float32 [b, 2].

    Returns:
        Images and targets. By CutMix, targets are mixed by the area within the image.

    Reference:
        Zhang et al. 2018, arXiv 1710.09412; Yun et al. 2019, arXiv 1905.04899.
    """
    count = tf.shape(images)[0]
    neighbour = tf.minimum(tf.bitwise.bitwise_xor(tf.range(count), 1), count - 1)
    others = tf.gather(images, neighbour)
    if settings.mixup:
        share = kept[:, None, None, None]
        images = others + share * (images - others)
    else:
        side = tf.sqrt(1 - kept)[:, None] * height_and_width(images)
        start = tf.round(chance * height_and_width(images) - side / 2)
        boxes = _boxes(images, start, start + tf.round(side))
        images = tf.where(boxes, others, images)
        kept = 1 - tf.reduce_mean(tf.cast(boxes, tf.float32), axis=(1, 2, 3))
    theirs = tf.gather(targets, neighbour)
    return images, theirs + kept[:, None] * (targets - theirs)


def _boxes(images: tf.Tensor, start: tf.Tensor, stop: tf.Tensor) -> tf.Tensor:
    """Marks the pixels of a rectangle in each image, from corners [b, 2]: bool [b, h, w, 1]."""
    height, width = tf.unstack(tf.shape(images)[1:3])
    rows, columns = tf.range(height, dtype=tf.int32), tf.range(width, dtype=tf.int32)
    down, right = tf.cast(rows, tf.float32)[None, :, None], tf.cast(columns, tf.float32)[None, None, :]
    first, last = start[:, :, None, None], stop[:, :, None, None]
    inside = (down >= first[:, 0]) & (down < last[:, 0]) & (right >= first[:, 1]) & (right < last[:, 1])
    return inside[..., None]
