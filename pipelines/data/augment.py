"""Augmentation of a batch of training images: sharpness, random crops, mirroring, and the others in turn.

Crops and mirroring are done in one gather, from the source index of each output pixel, which is faster than padding and
two gathers, or a map over images.
"""

from dataclasses import dataclass

import tensorflow as tf

from pipelines.core.config import Augment
from pipelines.data.mixing import erased, mixed, shares
from pipelines.data.warp import displacements, warp

ALL = slice(None)


@dataclass(frozen=True)
class Draws:
    """Random decisions for each image of a batch."""

    down: tf.Tensor
    """Rows from the top of the image to the top of the crop, int32 [b], from -pad to pad."""
    right: tf.Tensor
    """Columns from the left of the image to the left of the crop, int32 [b], from -pad to pad."""
    mirrored: tf.Tensor
    """Whether the crop is mirrored, bool [b]."""

    def rows(self, part: slice) -> "Draws":
        """Selects a part of the batch."""
        return Draws(self.down[part], self.right[part], self.mirrored[part])


def draw(count: int | tf.Tensor, settings: Augment, seed: tf.Tensor) -> Draws:
    """Draws the augmentation of a batch, deterministic in the seed.

    Args:
        count: number of images.
        settings: padding, and whether to mirror.
        seed: two integers.

    Returns:
        Offsets with equal probabilities; mirroring with probability 1/2, or never.
    """
    chance = tf.random.stateless_uniform([3, count], seed)
    moves = tf.cast(chance[:2] * (2 * settings.pad + 1), tf.int32) - settings.pad
    return Draws(moves[0], moves[1], tf.logical_and(settings.mirror, chance[2] < 0.5))


def move(images: tf.Tensor, draws: Draws) -> tf.Tensor:
    """Crops each image from its zero-padded version and mirrors it, as drawn.

    Args:
        images: float32 [b, h, w, c].
        draws: one draw per image.

    Returns:
        float32 [b, h, w, c]; pixels outside an image are 0.
    """
    batch, height, width, channels = tf.unstack(tf.shape(images))
    rows = draws.down[:, None] + tf.range(height)
    columns = tf.range(width)
    columns = draws.right[:, None] + tf.where(draws.mirrored[:, None], width - 1 - columns, columns)
    inside = ((rows >= 0) & (rows < height))[:, :, None] & ((columns >= 0) & (columns < width))[:, None, :]
    source = (tf.range(batch)[:, None, None] * height + rows[:, :, None]) * width + columns[:, None, :]
    # All pixels are in one row, after a zero pixel that stands for everything outside an image.
    pixels = tf.pad(tf.reshape(images, [batch * height * width, channels]), [[1, 0], [0, 0]])
    return tf.ensure_shape(tf.gather(pixels, tf.where(inside, source + 1, 0)), images.shape)


def sharpened(images: tf.Tensor, factors: tf.Tensor) -> tf.Tensor:
    """Mixes images with a blurred copy, as Pillow's `ImageEnhance.Sharpness` does.

    Args:
        images: float32 [b, h, w, c].
        factors: 0 is blurred, 1 the image as it is, 2 sharpened, float32 [b, 1, 1, 1].

    Returns:
        float32 [b, h, w, c], not clipped.
    """
    height, width = images.shape[1:3]
    edges = tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]], "SYMMETRIC")
    # Sums of rows, then of columns. TensorFlow's convolution fails without images.
    rows = edges[:, :height] + edges[:, 1:-1] + edges[:, 2:]
    blurred = (rows[:, :, :width] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * images) / 13
    return blurred + factors * (images - blurred)


def augment(
    images: tf.Tensor,
    targets: tf.Tensor,
    settings: Augment,
    seed: tf.Tensor,
    *,
    count: int | tf.Tensor | None = None,
    part: slice = ALL,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Augments a batch at random, deterministic in the seed.

    Everything is drawn for the whole batch, so that augmentation does not depend on the number of hosts.

    Args:
        images: preprocessed images of this host, float32 [b, h, w, c].
        targets: their targets, float32 [b, classes]; only mixup and CutMix change them.
        settings: augmentation; disabled parts cost nothing.
        seed: two integers, for example (seed of the run, step).
        count: number of images in the whole batch; None if this host has all.
        part: the images of this host in the whole batch.

    Returns:
        Images and targets of the same shapes.

    Example:
        augment(images, targets, Augment(pad=8, mirror=True), tf.constant([0, 17]))
    """
    whole = tf.shape(images)[0] if count is None else count
    # Separate seeds: enabling one kind of augmentation leaves the draws of the others unchanged.
    for_warp, for_cutout, for_shares, for_boxes, for_sharpness = (
        tf.random.fold_in(seed, number) for number in range(1, 6)
    )
    if settings.sharpness:
        chance = tf.random.stateless_uniform([whole, 1, 1, 1], for_sharpness, -1, 1)[part]
        images = sharpened(images, 1 + settings.sharpness * chance)
    if settings.pad or settings.mirror:
        images = move(images, draw(whole, settings, seed).rows(part))
    if settings.rotate or settings.zoom or settings.elastic:
        height, width = images.shape[1:3]
        images = warp(images, displacements(whole, (height, width), settings, for_warp)[part])
    if settings.cutout:
        images = erased(images, settings.cutout, tf.random.stateless_uniform([whole, 2], for_cutout)[part])
    alpha = settings.mixup or settings.cutmix
    if alpha:
        kept = shares(whole, alpha, for_shares)[part]
        images, targets = mixed(
            images, targets, settings, kept, tf.random.stateless_uniform([whole, 2], for_boxes)[part]
        )
    return images, targets
