"""Sample figures: examples of a data set as stored, preprocessed and augmented."""

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from pipelines.core.class_names import class_names
from pipelines.core.config import Augment, Config
from pipelines.core.errors import UserError
from pipelines.data.augment import augment
from pipelines.data.figures import COLUMNS, ImageRow, draw_rows
from pipelines.data.preprocess import apply, fit
from pipelines.data.rand_augment import rand_augmented
from pipelines.data.sources import ALL, DataInfo, Examples, describe, load
from pipelines.data.stream import Stream

STORED = 4  # Rows if no configuration is given.
DRAWS = 3
ENOUGH = 5000  # Examples from which samples are selected.


def draw_samples(data: str, config: Config | None, data_dir: Path | None, path: Path) -> None:
    """Draws training examples of up to ten classes.

    Args:
        data: TFDS name, or the folder of a prepared data set.
        config: configuration whose preprocessing and augmentation are shown; None shows stored examples.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
        path: the figure to write.

    Raises:
        UserError: the data are not available, or are not images of 1 or 3 channels.
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
    images, labels = _select(examples, len(info.labels), per_class)
    if config is None:
        rows = [ImageRow("as stored" if row == 0 else "", images[:, row]) for row in range(images.shape[1])]
    else:
        rows = _processed(images[:, 0], config, examples)
    names = class_names(info.labels)
    draw_rows(rows, [names[label] for label in labels], _heading(info), settings(config) if config else "", path)


def settings(config: Config) -> str:
    """Describes the preprocessing and augmentation of a configuration."""
    return "; ".join([*_preprocessing(config), *_augmentation(config)])


def _preprocessing(config: Config) -> Iterator[str]:
    preprocess = config.preprocess
    inverse = round(1 / preprocess.scale)
    scaled = f"values / {inverse}" if inverse and preprocess.scale == 1 / inverse else f"values x {preprocess.scale:g}"
    yield f"{scaled} {preprocess.offset:+g}" if preprocess.offset else scaled
    if preprocess.contrast is not None:
        yield f"contrast of each image normalized to {preprocess.contrast:g}"
    if preprocess.mean != "none":
        yield f"mean of each {preprocess.mean} subtracted"


def _augmentation(config: Config) -> Iterator[str]:
    augment = config.augment
    steps = {
        f"RandAugment of {augment.rand_augment} operations at {augment.magnitude:.0%}": augment.rand_augment,
        f"sharpness changed by up to {augment.sharpness:.0%}": augment.sharpness,
        f"{augment.pad} pixels of padding, random crop": augment.pad,
        "random mirror": augment.mirror,
        f"rotation by up to {augment.rotate:g} degrees": augment.rotate,
        f"scaled by up to {1 + augment.zoom:g}": augment.zoom,
        f"elastic displacements of {augment.elastic:g} pixels": augment.elastic,
        f"squares of {augment.cutout} pixels erased": augment.cutout,
        f"mixup of {augment.mixup:g}": augment.mixup,
        f"CutMix of {augment.cutmix:g}": augment.cutmix,
    }
    yield from [step for step, value in steps.items() if value] or ["no augmentation"]


def _heading(info: DataInfo) -> str:
    height, width, channels = info.shape
    counts = ", ".join(f"{count:,} {name}" for name, count in info.counts.items() if count)
    return f"Training images of {info.name} {info.version} ({height} x {width} x {channels}; {counts})"


def _processed(images: np.ndarray, config: Config, examples: Examples | Stream) -> list[ImageRow]:
    fitted, stored = fit(config.preprocess, examples.images), tf.constant(images)
    rows = [ImageRow("as stored", images), ImageRow("preprocessed", apply(fitted, stored).numpy())]
    if config.augment != Augment():
        targets = tf.zeros((len(images), 1))
        for number in range(DRAWS):
            seed = tf.constant([config.seed, number])
            changed = rand_augmented(stored, config.augment, seed) if config.augment.rand_augment else stored
            augmented, _ = augment(apply(fitted, changed), targets, config.augment, seed)
            rows.append(ImageRow(f"augmented,\ndraw {number + 1}", augmented.numpy()))
    return rows


def _select(examples: Examples | Stream, classes: int, per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Selects the first examples of up to ten evenly spaced classes.

    Returns:
        Images [classes, up to per_class, ...], and the classes.
    """
    images, labels = _first(examples)
    # One row for each class, true for its examples.
    members = labels.T > 0 if labels.ndim == 2 else labels == np.arange(classes)[:, None]
    counts = members.sum(axis=1)
    # Small sets have fewer.
    per_class = max(min(per_class, counts.max()), 1)
    common = np.flatnonzero(counts >= per_class)
    if not len(common):
        raise UserError("there is no training example with a class to draw.")
    shown = common[np.linspace(0, len(common) - 1, min(COLUMNS, len(common))).round().astype(int)]
    return np.stack([images[np.flatnonzero(members[label])[:per_class]] for label in shown]), shown


def _first(examples: Examples | Stream) -> tuple[np.ndarray, np.ndarray]:
    if isinstance(examples, Examples):
        return examples.images[:ENOUGH], examples.labels[:ENOUGH]
    batch = next(iter(examples.decoded(examples.records.take(ENOUGH)).batch(ENOUGH)))
    return batch[0].numpy(), batch[1].numpy()
