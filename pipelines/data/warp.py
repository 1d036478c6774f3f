"""Rotation, scaling and elastic distortion of a batch of images: one bilinear resampling along random displacements."""

import math

import numpy as np
import tensorflow as tf

from pipelines.core.config import Augment

SMOOTHNESS = 4
"""Standard deviation in pixels of the Gaussian that smooths elastic displacements, as in the reference."""


def height_and_width(images: tf.Tensor) -> tf.Tensor:
    """Returns height and width of images [b, h, w, c], float32 [2]."""
    return tf.cast(tf.shape(images)[1:3], tf.float32)


def displacements(count: int | tf.Tensor, size: tuple[int, int], settings: Augment, seed: tf.Tensor) -> tf.Tensor:
    """Draws how far from each pixel of the output its value is taken in the input.

    Args:
        count: number of images.
        size: height and width in pixels.
        settings: largest angle in degrees, scale, and standard deviation of the elastic displacements in pixels.
        seed: two integers.

    Returns:
        Rows and columns, float32 [b, h, w, 2]. Angles and the logarithm of the scale are uniform; elastic displacements
        are normal at each pixel and smooth in space.

    Reference:
        Simard, Steinkraus, Platt 2003, "Best Practices for Convolutional Neural Networks Applied to Visual Document
        Analysis".
    """
    for_angle, for_field = tf.unstack(tf.random.split(seed, 2))
    height, width = size
    down, right = tf.meshgrid(
        tf.range(height, dtype=tf.float32) - (height - 1) / 2,
        tf.range(width, dtype=tf.float32) - (width - 1) / 2,
        indexing="ij",
    )
    angle = tf.random.stateless_uniform([count, 1, 1], for_angle, -1.0, 1.0) * (settings.rotate * math.pi / 180)
    # Sines of half an angle leave no rounding for an angle of zero.
    sine, less = tf.sin(angle), -2 * tf.square(tf.sin(angle / 2))
    moved = tf.stack([down * less + right * sine, right * less - down * sine], axis=-1)
    if settings.zoom:
        # A separate seed, so that angles and elastic displacements do not depend on it.
        power = tf.random.stateless_uniform([count, 1, 1, 1], tf.random.fold_in(seed, 0), -1.0, 1.0)
        taken = tf.stack([down, right], axis=-1) + moved
        moved += (tf.pow(1 + settings.zoom, power) - 1) * taken
    if not settings.elastic:
        return moved
    # Noise on a coarse grid, smoothed by one matrix for each axis.
    rows, columns = _smoothing(height), _smoothing(width)
    noise = tf.random.stateless_normal([count, rows.shape[1], columns.shape[1], 2], for_field)
    return moved + settings.elastic * tf.einsum("hi,bijd,wj->bhwd", rows, noise, columns)


def warp(images: tf.Tensor, moved: tf.Tensor) -> tf.Tensor:
    """Resamples each image at displaced positions, by bilinear interpolation.

    Args:
        images: float32 [b, h, w, c].
        moved: the result of `displacements`.

    Returns:
        float32 [b, h, w, c]; pixels from outside an image are 0.
    """
    batch, height, width, channels = tf.unstack(tf.shape(images))
    # One line of zeros on each side stands for everything outside.
    padded = tf.reshape(tf.pad(images, [[0, 0], [1, 1], [1, 1], [0, 0]]), [-1, channels])
    down = tf.range(1, height + 1, dtype=tf.int32)[:, None]
    right = tf.range(1, width + 1, dtype=tf.int32)[None, :]
    down = tf.clip_by_value(tf.cast(down, tf.float32) + moved[..., 0], 0.0, tf.cast(height + 1, tf.float32))
    right = tf.clip_by_value(tf.cast(right, tf.float32) + moved[..., 1], 0.0, tf.cast(width + 1, tf.float32))
    top = tf.minimum(tf.cast(down, tf.int32), height)
    left = tf.minimum(tf.cast(right, tf.int32), width)
    below, beside = down - tf.cast(top, tf.float32), right - tf.cast(left, tf.float32)
    corner = (tf.range(batch)[:, None, None] * (height + 2) + top) * (width + 2) + left
    shares = ((1 - below) * (1 - beside), (1 - below) * beside, below * (1 - beside), below * beside)
    steps = (0, 1, width + 2, width + 3)
    parts = [tf.gather(padded, corner + step) * share[..., None] for step, share in zip(steps, shares, strict=True)]
    return tf.ensure_shape(tf.add_n(parts), images.shape)


def _smoothing(length: int) -> np.ndarray:
    """Returns the matrix [pixels, grid points] that turns unit noise into smooth unit noise."""
    points = np.arange(-SMOOTHNESS, length + 2 * SMOOTHNESS, SMOOTHNESS / 2)
    weights = np.exp(-((np.arange(length)[:, None] - points) ** 2) / (2 * SMOOTHNESS**2))
    return (weights / np.linalg.norm(weights, axis=1, keepdims=True)).astype(np.float32)
