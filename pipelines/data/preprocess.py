"""Preprocessing of stored values to inputs of the net: one function for tf.data, the SavedModel and the ONNX graph."""

import io
import json
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from pydantic import ValidationError

from pipelines.core.config import Preprocess
from pipelines.core.errors import UserError
from pipelines.core.files import replacing
from pipelines.core.run import TableColumn

# Minimum standard deviation that contrast normalization divides by, in grey levels: above the rounding noise of a
# single-colour image (1e-4 at 224 x 224 x 3), below the deviation of a small image with one pixel one level off (0.018
# at 32 x 32 x 3).
FLAT = 0.01
CHUNK = 1000
# Largest standardized number of a table: a mistyped one must not outweigh all others.
LIMIT = 10.0
# Relative deviation below which all numbers of a column are the same but for rounding in float32.
SAME = 1e-6
# Prefix of the arrays of an `Encoding` in a file.
TABLE = "table_"


@dataclass(frozen=True)
class Encoding:
    """Encoding of the columns of a table, fitted to the training rows.

    Numbers are standardized, and missing ones become 0, the mean. An indicator for each column with missing numbers,
    and one for each category of the others, follow.
    """

    numbers: np.ndarray
    """Positions of the columns of numbers, int64 [k]."""
    means: np.ndarray
    """Their means, float32 [k]."""
    deviations: np.ndarray
    """Their standard deviations, float32 [k]."""
    missing: np.ndarray
    """Positions of the columns with an indicator of missing numbers, int64 [m]."""
    owners: np.ndarray
    """Position of the column of each category, int64 [c]."""
    categories: np.ndarray
    """Index of each category in its column, float32 [c]."""
    target: np.ndarray
    """Mean and standard deviation of the targets of a regression, float64 [2]; empty for classes."""
    varying: np.ndarray
    """1 for each input that differs between training rows, float32 [inputs]. 0 for the others, which a net always gets
    as 0: it cannot learn their weights, so other rows would bring random ones into play."""


@dataclass(frozen=True)
class Fitted:
    """Preprocessing fitted to the training examples."""

    settings: Preprocess
    mean: np.ndarray | None
    """Mean per channel (c,), per pixel (h, w, c), or of vectors (f,), float32; None subtracts nothing."""
    encoding: Encoding | None = None
    """Encoding of a table, which comes first; None for other data."""


def fit(
    settings: Preprocess,
    images: np.ndarray | Iterable[np.ndarray],
    columns: Sequence[TableColumn] = (),
    labels: np.ndarray | None = None,
) -> Fitted:
    """Computes the mean of the training images that `apply` subtracts, and the encoding of a table.

    Args:
        settings: preprocessing settings.
        images: training images, uint8 [n, h, w, c], or batches of them (`Stream.images`), or vectors, float32 [n, f].
        columns: columns of a table; none for other data.
        labels: classes or targets of the rows of a table.

    Returns:
        The settings with the mean, accumulated in float64, and the encoding.

    Example:
        fitted = fit(config.preprocess, load("cifar10", "train").images)
    """
    plain = Fitted(settings, None, _encoding(np.asarray(images), columns, labels) if columns else None)
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
    return Fitted(settings, mean.astype(np.float32), plain.encoding)


def apply(fitted: Fitted, images: tf.Tensor) -> tf.Tensor:
    """Encodes rows, scales, adds the offset, normalizes the contrast, subtracts the mean, in this order, in float32.

    Contrast normalization gives each image a mean of 0 and a population standard deviation of `settings.contrast` over
    all its pixels and channels. A single-colour image becomes 0.

    Args:
        fitted: the result of `fit` or `load`.
        images: uint8 [b, h, w, c], pixels 0 to 255; or vectors, float32 [b, f], without contrast normalization.

    Returns:
        float32 of the same shape (encoded rows are longer), computed by TensorFlow operations that ONNX has too.

    Raises:
        TypeError: the images are not uint8, or the vectors not float32.
        ValueError: their shape does not fit the mean.

    Example:
        x = apply(fitted, tf.constant(images[:100]))
    """
    expected = tf.float32 if len(images.shape) == 2 else tf.uint8
    if images.dtype != expected:
        raise TypeError(f"preprocessing starts from stored {expected.name}. Received: dtype={images.dtype.name}")
    x = tf.cast(images, tf.float32)
    if fitted.encoding is not None:
        x = _encoded(fitted.encoding, x)
    mean = fitted.mean
    if mean is not None and tuple(x.shape[-mean.ndim :]) != mean.shape:
        raise ValueError(f"the mean has shape {mean.shape}, which does not fit. Received: images.shape={images.shape}")
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


def standardized(fitted: Fitted, targets: tf.Tensor) -> tf.Tensor:
    """Standardizes the targets of a table for training; those of other data stay as they are.

    Args:
        fitted: the result of `fit` or `load`.
        targets: float32 [b, 1].
    """
    if fitted.encoding is None or not fitted.encoding.target.size:
        return targets
    mean, deviation = fitted.encoding.target.tolist()
    return (targets - mean) / deviation


def in_units(fitted: Fitted, outputs: Any) -> Any:
    """Converts outputs of a net to the unit of the target; the inverse of `standardized`.

    Args:
        fitted: the result of `fit` or `load`.
        outputs: float32 [b, 1], an array or a tensor.
    """
    if fitted.encoding is None or not fitted.encoding.target.size:
        return outputs
    mean, deviation = fitted.encoding.target.tolist()
    return outputs * deviation + mean


def save(fitted: Fitted, path: Path) -> None:
    """Writes settings, mean and encoding to one `.npz` file.

    Args:
        fitted: the fitted preprocessing.
        path: the file to write or replace.
    """
    arrays = {"settings": np.array(fitted.settings.model_dump_json())}
    if fitted.mean is not None:
        arrays["mean"] = fitted.mean
    if fitted.encoding is not None:
        arrays |= {f"{TABLE}{name}": array for name, array in vars(fitted.encoding).items()}
    with replacing(path) as aside:
        np.savez(aside, allow_pickle=False, **arrays)


def load(path: Path) -> Fitted:
    """Reads a file written by `save`.

    Args:
        path: the `.npz` file.

    Returns:
        The same settings, mean and encoding.

    Raises:
        UserError: the file is missing or damaged.
    """
    try:
        with np.load(io.BytesIO(path.read_bytes()), allow_pickle=False) as stored:
            settings = Preprocess.model_validate(json.loads(str(stored["settings"])))
            mean = stored.get("mean")
            encoding = None
            if f"{TABLE}numbers" in stored:
                # In files of earlier versions, all inputs count.
                arrays = {f"{TABLE}varying": np.ones((), np.float32), **stored}
                encoding = Encoding(**{name: arrays[f"{TABLE}{name}"] for name in Encoding.__dataclass_fields__})
    except FileNotFoundError:
        raise UserError(f"{path} is missing. Expected a complete run directory.") from None
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, ValidationError) as error:
        raise UserError(f"the preprocessing in {path} is damaged ({error}). Restore the file or train again.") from None
    if (settings.mean == "none") != (mean is None):
        raise UserError(f"the preprocessing in {path} is damaged (its mean is missing). Restore it or train again.")
    return Fitted(settings, mean, encoding)


def _encoding(rows: np.ndarray, columns: Sequence[TableColumn], labels: np.ndarray | None) -> Encoding:
    """Fits the encoding of a table; targets are floating-point numbers, classes are integers."""
    numbers = np.array([place for place, column in enumerate(columns) if column.categories is None], np.int64)
    missing = np.array([place for place, column in enumerate(columns) if column.missing], np.int64)
    places = [(place, index) for place, column in enumerate(columns) for index in range(len(column.categories or ()))]
    means, deviations = _moments(rows[:, numbers])
    varying = [
        deviations > 0,
        *[_varying(np.isnan(rows[:, place]), [True]) for place in missing],
        *[_varying(rows[:, place], range(len(one.categories))) for place, one in enumerate(columns) if one.categories],
    ]
    target = np.zeros(0)
    if labels is not None and labels.dtype.kind == "f":
        mean, deviation = _moments(labels)
        target = np.concatenate([mean, np.where(deviation > 0, deviation, 1)])
    return Encoding(
        numbers=numbers,
        means=means.astype(np.float32),
        deviations=np.where(deviations > 0, deviations, 1).astype(np.float32),
        missing=missing,
        owners=np.array([place for place, _ in places], np.int64),
        categories=np.array([index for _, index in places], np.float32),
        target=target,
        varying=np.concatenate(varying).astype(np.float32),
    )


def _moments(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns mean and standard deviation of the known values of each column, float64; 0 if they do not differ."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    exact = np.where(known, values.astype(np.float64), 0)
    means = exact.sum(axis=0) / count
    deviations = np.sqrt(np.where(known, np.square(exact - means), 0).sum(axis=0) / count)
    return means, np.where(deviations > np.maximum(SAME * np.abs(means), np.finfo(np.float32).tiny), deviations, 0)


def _varying(values: np.ndarray, sought: Sequence[float]) -> np.ndarray:
    """Returns which of the sought values some of the values have, but not all of them, bool."""
    found, counts = np.unique(values, return_counts=True)
    return np.isin(np.array(sought), found[counts < len(values)])


def _encoded(encoding: Encoding, rows: tf.Tensor) -> tf.Tensor:
    parts = []
    if encoding.numbers.size:
        numbers = tf.gather(rows, encoding.numbers, axis=1)
        exact = (numbers - encoding.means) / encoding.deviations
        parts.append(tf.where(tf.math.is_nan(numbers), 0.0, tf.clip_by_value(exact, -LIMIT, LIMIT)))
    if encoding.missing.size:
        parts.append(tf.cast(tf.math.is_nan(tf.gather(rows, encoding.missing, axis=1)), tf.float32))
    if encoding.owners.size:
        # ONNX would take -1 for the last category in a one-hot encoding.
        chosen = tf.equal(tf.gather(rows, encoding.owners, axis=1), encoding.categories)
        parts.append(tf.cast(chosen, tf.float32))
    return tf.concat(parts, axis=1) * encoding.varying


def _chunks(images: np.ndarray | Iterable[np.ndarray]) -> Iterator[np.ndarray]:
    if not isinstance(images, np.ndarray):
        yield from images
        return
    for start in range(0, len(images), CHUNK):
        yield images[start : start + CHUNK]
