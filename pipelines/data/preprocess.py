"""Preprocessing of stored values to inputs of the net: one function for tf.data, the SavedModel and the ONNX graph."""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf
from pydantic import ValidationError

from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.core.files import replacing

# Minimum standard deviation that contrast normalization divides by, in grey levels: above the rounding noise of a
# single-colour image (1e-4 at 224 x 224 x 3), below the deviation of a small image with one pixel one level off (0.018
# at 32 x 32 x 3).
FLAT = 0.01
CHUNK = 1000


@dataclass(frozen=True)
class Fitted:
    """Preprocessing fitted to the training examples."""

    settings: Preprocess
    mean: np.ndarray | None
    """Mean per channel (c,), per pixel (h, w, c), or of vectors (f,), float32; None subtracts nothing."""


def fit(settings: Preprocess, images: np.ndarray | Iterable[np.ndarray]) -> Fitted:
    """Computes the mean of the training images that `apply` subtracts.

    Args:
        settings: preprocessing settings.
        images: training images, uint8 [n, h, w, c], or batches of them (`Stream.images`), or vectors, float32 [n, f].

    Returns:
        The settings with the mean, accumulated in float64.

    Example:
        fitted = fit(config.preprocess, load("cifar10", "train").images)
    """
    plain = Fitted(settings, None)
    if settings.mean == "none":
        return plain
    count, total = 0, np.zeros(())
    for batch in _chunks(images):
        count += len(batch)
        total = total + apply(plain, tf.constant(batch)).numpy().sum(axis=0, dtype=np.float64)
    if not count:
        raise ValueError("the mean needs at least one image. Received: no images")
    mean = total / count
    if settings.mean == "channel":
        mean = mean.mean(axis=tuple(range(mean.ndim - 1)))
    return Fitted(settings, mean.astype(np.float32))


def apply(fitted: Fitted, images: tf.Tensor) -> tf.Tensor:
    """Scales, adds the offset, normalizes the contrast and subtracts the mean, in this order, in float32.

    Contrast normalization gives each image a mean of 0 and a population standard deviation of `settings.contrast` over
    all its pixels and channels. A single-colour image becomes 0.

    Args:
        fitted: the result of `fit` or `load`.
        images: uint8 [b, h, w, c], pixels 0 to 255; or vectors, float32 [b, f], without contrast normalization.

    Returns:
        float32 of the same shape, computed by TensorFlow operations that ONNX has too.

    Raises:
        TypeError: the images are not uint8, or the vectors not float32.
        ValueError: their shape does not fit the mean.

    Example:
        x = apply(fitted, tf.constant(images[:100]))
    """
    expected = tf.float32 if len(images.shape) == 2 else tf.uint8
    if images.dtype != expected:
        raise TypeError(f"preprocessing starts from stored {expected.name}. Received: dtype={images.dtype.name}")
    mean = fitted.mean
    if mean is not None and tuple(images.shape[-mean.ndim :]) != mean.shape:
        raise ValueError(f"the mean has shape {mean.shape}, which does not fit. Received: images.shape={images.shape}")
    x = tf.cast(images, tf.float32)
    if fitted.settings.contrast is None:
        x *= fitted.settings.scale
        if fitted.settings.offset:
            x += fitted.settings.offset
    else:
        # Scale and offset would cancel out, and sums of the unscaled integers are exact.
        x -= tf.reduce_mean(x, axis=(1, 2, 3), keepdims=True)
        deviation = tf.sqrt(tf.reduce_mean(tf.square(x), axis=(1, 2, 3), keepdims=True))
        x *= fitted.settings.contrast / tf.maximum(deviation, FLAT)
    return x if mean is None else x - mean


def save(fitted: Fitted, path: Path) -> None:
    """Writes settings and mean to one `.npz` file.

    Args:
        fitted: the fitted preprocessing.
        path: the file to write or replace.
    """
    settings = np.array(fitted.settings.model_dump_json())
    with replacing(path) as aside:
        if fitted.mean is None:
            np.savez(aside, settings=settings)
        else:
            np.savez(aside, settings=settings, mean=fitted.mean)


def load(path: Path) -> Fitted:
    """Reads a file written by `save`.

    Args:
        path: the `.npz` file.

    Returns:
        The same settings and mean.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            settings = Preprocess.model_validate(json.loads(str(stored["settings"])))
            mean = stored.get("mean")
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Expected a complete run directory.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, ValidationError) as error:
        raise UserError(f"the preprocessing in {path} is damaged ({error}). Restore the file or train again.") from None
    if (settings.mean == "none") != (mean is None):
        raise UserError(f"the preprocessing in {path} is damaged (its mean is missing). Restore it or train again.")
    return Fitted(settings, mean)


def _chunks(images: np.ndarray | Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    if not isinstance(images, np.ndarray):
        yield from images
        return
    for start in range(0, len(images), CHUNK):
        yield images[start : start + CHUNK]
