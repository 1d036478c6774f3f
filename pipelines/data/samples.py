"""Chooses samples of a data set, runs them through preprocessing and augmentation, and has them drawn."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.data.augment import augment
from pipelines.data.preprocess import apply, fit
from pipelines.data.sample_figure import Row, draw
from pipelines.data.sources import ALL, DataInfo, Examples, describe, load
from pipelines.data.stream import Stream

COLUMNS = 10
STORED = 4  # Rows for a data set alone.
DRAWS = 3
ENOUGH = 5000  # Examples to choose samples from.


def draw_samples(data: str, config: Config | None, data_dir: Path | None, path: Path) -> None:
    """Draws training examples of up to ten classes.

    Args:
        data: TFDS name, or the folder of a prepared data set.
        config: whose preprocessing and augmentation to show; None shows the examples as they are stored.
        data_dir: the folder with data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
        path: the picture to write.

    Raises:
        UserError: the data cannot be had, or holds no images of 1 or 3 channels.
    """
    validation = config.validation if config else 0
    info = describe(data, data_dir, validation)
    if len(info.shape) != 3:
        raise UserError(f"only images can be drawn. '{data}' holds vectors of {info.shape[0]} numbers.")
    if info.shape[-1] not in {1, 3}:
        raise UserError(f"only images of 1 or 3 channels can be drawn. Those of '{data}' have {info.shape[-1]}.")
    sys.stderr.write(f"reading the training examples of {data} ...\n")
    examples = load(data, "train", data_dir, validation, config.subset if config else ALL)
    per_class = 1 if config else STORED
    images, labels = _choose(examples, len(info.labels), per_class)
    if config is None:
        rows = [Row("as stored" if row == 0 else "", images[:, row]) for row in range(STORED)]
    else:
        rows = _changed(images[:, 0], config, examples)
    draw(rows, [info.labels[label] for label in labels], _heading(info), settings(config) if config else "", path)


def settings(config: Config) -> str:
    """Preprocessing and augmentation of a configuration, in words."""
    return "; ".join([*_preprocessing(config), *_augmentation(config)])


def _preprocessing(config: Config) -> Iterator[str]:
    chosen = config.preprocess
    inverse = round(1 / chosen.scale)
    scaled = f"values / {inverse}" if inverse and chosen.scale == 1 / inverse else f"values x {chosen.scale:g}"
    yield f"{scaled} {chosen.offset:+g}" if chosen.offset else scaled
    if chosen.contrast is not None:
        yield f"contrast of each image normalised to {chosen.contrast:g}"
    if chosen.mean != "none":
        yield f"mean of each {chosen.mean} subtracted"


def _augmentation(config: Config) -> Iterator[str]:
    chosen = config.augment
    if chosen.pad:
        yield f"{chosen.pad} pixels of padding, random crop"
    if chosen.mirror:
        yield "random mirror"
    if not (chosen.pad or chosen.mirror):
        yield "no augmentation"


def _heading(info: DataInfo) -> str:
    height, width, channels = info.shape
    counts = ", ".join(f"{count:,} {name}".replace(",", " ") for name, count in info.counts.items() if count)
    return f"Training images of {info.name} {info.version} ({height} x {width} x {channels}; {counts})"


def _changed(images: np.ndarray, config: Config, examples: Examples | Stream) -> list[Row]:
    seen = apply(fit(config.preprocess, examples.images), tf.constant(images))
    rows = [Row("as stored", images), Row("preprocessed", seen.numpy())]
    if config.augment.pad or config.augment.mirror:
        for number in range(DRAWS):
            drawn = augment(seen, config.augment, tf.constant([config.seed, number]))
            rows.append(Row(f"augmented,\ndraw {number + 1}", drawn.numpy()))
    return rows


def _choose(examples: Examples | Stream, classes: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """The first examples of up to ten classes, evenly spaced: images [classes, per_class, ...] and class numbers."""
    images, labels = _first(examples)
    common = np.flatnonzero(np.bincount(labels, minlength=classes) >= per_class)
    if not len(common):
        raise UserError(f"there are no {per_class} examples of any class to draw.")
    shown = common[np.linspace(0, len(common) - 1, min(COLUMNS, len(common))).round().astype(int)]
    return np.stack([images[np.flatnonzero(labels == label)[:per_class]] for label in shown]), shown


def _first(examples: Examples | Stream) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(examples, Examples):
        return examples.images[:ENOUGH], examples.labels[:ENOUGH]
    batch = next(iter(examples.decoded(examples.records.take(ENOUGH)).batch(ENOUGH)))
    return batch[0].numpy(), batch[1].numpy()
