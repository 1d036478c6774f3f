"""Augmentation of a batch of training images: random crops of the padded image, and random mirroring.

Both are done in one gather, from the source index of each output pixel. On two cores, with images of 32 x 32 x 3, it
reaches 169,000 images/s; padding and two gathers reach 71,000, a map over images 40,000.
"""

from dataclasses import dataclass

import tensorflow as tf

from pipelines.core.config import Augment


@dataclass(frozen=True)
class Draws:
    """Random decisions for each image of a batch."""

    down: tf.Tensor
    """Rows from the top of the image to the top of the crop, int32 [b], from -pad to pad."""
    right: tf.Tensor
    """Columns from the left of the image to the left of the crop, int32 [b], from -pad to pad."""
    mirrored: tf.Tensor
    """Whether the crop is mirrored, bool [b]."""

    def rows(self, start: int, stop: int) -> "Draws":
        """Selects the images `start` to `stop` of the batch."""
        return Draws(self.down[start:stop], self.right[start:stop], self.mirrored[start:stop])


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


def augment(images: tf.Tensor, settings: Augment, seed: tf.Tensor) -> tf.Tensor:
    """Crops and mirrors a batch at random, deterministic in the seed.

    Args:
        images: preprocessed images, float32 [b, h, w, c].
        settings: augmentation; without padding and mirroring, images are unchanged.
        seed: two integers, for example (seed of the run, step).

    Returns:
        float32 [b, h, w, c].

    Example:
        augment(images, Augment(pad=8, mirror=True), tf.constant([0, 17]))
    """
    if not (settings.pad or settings.mirror):
        return images
    return move(images, draw(tf.shape(images)[0], settings, seed))
