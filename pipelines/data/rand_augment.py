"""RandAugment: random operations on the stored pixels of each image.

Keras's layer of this name draws the same operations for all images of a batch, computes every operation there is, and
takes its random numbers from a state that a resumed run would have to restore. Here each image has operations of its
own, each is computed for its own images only, and all depend on nothing but seed and step.
"""

import math
from collections.abc import Callable

import tensorflow as tf

from pipelines.core.config import Augment
from pipelines.data.augment import ALL, sharpened
from pipelines.data.images.conversion import LUMINANCE
from pipelines.data.warp import height_and_width, warp

# Value of pixels from outside an image.
GREY = 127.0
LEVELS = 256
# At full strength: degrees, tangent of the shear, share of the side, contrast and so on changed by this factor, bits.
ROTATION, SHEAR, SHIFT, CHANGE, BITS = 30.0, 0.3, 0.3, 0.9, 4

# From images, float32 [n, h, w, c], 0 to 255, and their strengths, float32 [n], -1 to 1, to changed images.
Operation = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


def rand_augmented(
    images: tf.Tensor,
    settings: Augment,
    seed: tf.Tensor,
    *,
    count: int | tf.Tensor | None = None,
    part: slice = ALL,
) -> tf.Tensor:
    """Applies random operations to each image, one after the other, deterministic in the seed.

    Args:
        images: stored images of this host, uint8 [b, h, w, c], 1 or 3 channels.
        settings: number of operations and their magnitude.
        seed: two integers, for example (seed of the run, step).
        count: number of images in the whole batch; None if this host has all.
        part: the images of this host in the whole batch.

    Returns:
        uint8 of the same shape.

    Example:
        rand_augmented(images, Augment(rand_augment=2), tf.constant([0, 17]))

    Reference:
        Cubuk et al. 2019, arXiv 1909.13719.
    """
    whole = tf.shape(images)[0] if count is None else count
    operations = OPERATIONS if images.shape[-1] == 3 else [one for one in OPERATIONS if one is not saturation]
    for_choice, for_sign = tf.unstack(tf.random.split(tf.random.fold_in(seed, 5), 2))
    drawn = [settings.rand_augment, whole]
    choices = tf.random.stateless_uniform(drawn, for_choice, 0, len(operations), tf.int32)[:, part]
    signs = tf.where(tf.random.stateless_uniform(drawn, for_sign)[:, part] < 0.5, -1.0, 1.0)
    x = tf.cast(images, tf.float32)
    for number in range(settings.rand_augment):
        x = _chosen(x, operations, choices[number], settings.magnitude * signs[number])
    return tf.ensure_shape(tf.cast(tf.round(x), tf.uint8), images.shape)


def _chosen(images: tf.Tensor, operations: list[Operation], choices: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Applies one operation to each image: operation number `choices[i]` to image i."""
    groups = [tf.dynamic_partition(each, choices, len(operations)) for each in (images, strengths)]
    places = tf.dynamic_partition(tf.range(tf.shape(images)[0]), choices, len(operations))
    changed = [
        tf.clip_by_value(operation(*group), 0.0, 255.0) for operation, *group in zip(operations, *groups, strict=True)
    ]
    return tf.dynamic_stitch(places, changed)


def identity(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Changes nothing."""
    return images


def rotation(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Rotates by up to `ROTATION`."""
    angle = strengths * (ROTATION * math.pi / 180)
    sine, less = tf.sin(angle), -2 * tf.square(tf.sin(angle / 2))
    return _affine(images, (less, sine), (-sine, less))


def shear_across(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Moves rows against each other."""
    return _affine(images, (0.0, 0.0), (SHEAR * strengths, 0.0))


def shear_down(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Moves columns against each other."""
    return _affine(images, (0.0, SHEAR * strengths), (0.0, 0.0))


def shift_across(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Moves the image to the left or right, by whole pixels."""
    return _affine(images, (0.0, 0.0), (0.0, 0.0), right=tf.round(SHIFT * strengths * height_and_width(images)[1]))


def shift_down(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Moves the image up or down, by whole pixels."""
    return _affine(images, (0.0, 0.0), (0.0, 0.0), down=tf.round(SHIFT * strengths * height_and_width(images)[0]))


def brightness(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Makes the image darker or brighter."""
    return images * _factor(strengths)


def contrast(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Changes the distance of all values from the mean grey of the image."""
    mean = tf.reduce_mean(_grey(images), axis=(1, 2, 3), keepdims=True)
    return mean + _factor(strengths) * (images - mean)


def saturation(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Changes the distance of the colours from grey."""
    grey = _grey(images)
    return grey + _factor(strengths) * (images - grey)


def sharpness(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Blurs or sharpens."""
    return sharpened(images, _factor(strengths))


def posterization(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Keeps only the highest bits of each value."""
    step = tf.pow(2.0, tf.round(BITS * tf.abs(strengths)))[:, None, None, None]
    return tf.floor(images / step) * step


def solarization(images: tf.Tensor, strengths: tf.Tensor) -> tf.Tensor:
    """Inverts the values above a threshold."""
    threshold = (LEVELS * (1 - tf.abs(strengths)))[:, None, None, None]
    return tf.where(images < threshold, images, 255.0 - images)


def stretching(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Stretches the values of each channel to the whole range."""
    low = tf.reduce_min(images, axis=(1, 2), keepdims=True)
    span = tf.reduce_max(images, axis=(1, 2), keepdims=True) - low
    return tf.where(span > 0, 255.0 * tf.math.divide_no_nan(images - low, span), images)


def equalization(images: tf.Tensor, _: tf.Tensor) -> tf.Tensor:
    """Spreads the values of each channel evenly over the range, keeping their order."""
    batch, height, width, channels = tf.unstack(tf.shape(images))
    # Transposed as floats: oneDNN prints an error message about integers on processors without all of AVX-512.
    planes = tf.cast(tf.round(tf.reshape(tf.transpose(images, [0, 3, 1, 2]), [-1, height * width])), tf.int32)
    slots = tf.range(tf.shape(planes)[0])[:, None] * LEVELS + planes
    counts = tf.math.unsorted_segment_sum(
        tf.ones_like(tf.reshape(slots, [-1]), tf.float32), tf.reshape(slots, [-1]), batch * channels * LEVELS
    )
    below = tf.cumsum(tf.reshape(counts, [-1, LEVELS]), axis=1)
    # The lowest value becomes 0, the highest 255.
    first = tf.reduce_min(tf.where(below > 0, below, tf.cast(height * width, tf.float32)), axis=1, keepdims=True)
    spread = 255.0 * tf.math.divide_no_nan(below - first, below[:, -1:] - first)
    equal = tf.reshape(tf.gather(spread, planes, batch_dims=1), [batch, channels, height, width])
    flat = tf.reshape(first >= below[:, -1:], [batch, 1, 1, channels])
    return tf.where(flat, images, tf.transpose(equal, [0, 2, 3, 1]))


OPERATIONS: list[Operation] = [
    identity, rotation, shear_across, shear_down, shift_across, shift_down, brightness, contrast, saturation, sharpness,
    posterization, solarization, stretching, equalization,
]  # fmt: skip


def _affine(
    images: tf.Tensor,
    down_by: tuple[tf.Tensor | float, tf.Tensor | float],
    right_by: tuple[tf.Tensor | float, tf.Tensor | float],
    *,
    down: tf.Tensor | float = 0.0,
    right: tf.Tensor | float = 0.0,
) -> tf.Tensor:
    """Resamples images at positions that are displaced in proportion to their distance from the centre.

    Args:
        images: float32 [n, h, w, c].
        down_by: rows of displacement per row, and per column, of distance; numbers or [n].
        right_by: columns of displacement per row, and per column, of distance.
        down: rows of displacement everywhere.
        right: columns of displacement everywhere.
    """
    height, width = tf.unstack(height_and_width(images))
    rows = (tf.range(height) - (height - 1) / 2)[None, :, None]
    columns = (tf.range(width) - (width - 1) / 2)[None, None, :]

    def per_image(value: tf.Tensor | float) -> tf.Tensor:
        return tf.broadcast_to(value, tf.shape(images)[:1])[:, None, None]

    moved = tf.stack(
        [
            per_image(by_row) * rows + per_image(by_column) * columns + per_image(everywhere)
            for (by_row, by_column), everywhere in ((down_by, down), (right_by, right))
        ],
        axis=-1,
    )
    return warp(images - GREY, moved) + GREY


def _factor(strengths: tf.Tensor) -> tf.Tensor:
    return (1 + CHANGE * strengths)[:, None, None, None]


def _grey(images: tf.Tensor) -> tf.Tensor:
    return images if images.shape[-1] == 1 else tf.reduce_sum(images * LUMINANCE, axis=-1, keepdims=True)
