"""Chooses net, input size, batch size and schedule for the user's own data, and gives its reasons."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from highway_keras import pretrained
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.data.own.prepare import OwnData
from pipelines.data.own.rows import TableData
from pipelines.data.sources import DataInfo

# Sides of the input to choose from.
SIDES = (32, 48, 64, 96)
# Passes over the images that the time should allow; with fewer, a smaller side is better.
ENOUGH = 8
# Fewest and most passes over the data.
FEWEST, MOST = 3, 60
# Steps that an epoch should have at least, and the largest batch.
STEPS, BATCH = 20, 250
# Steps of training on a table, and fewest and most passes over its rows.
TABLE_STEPS, TABLE_FEWEST, TABLE_MOST = 1500, 15, 60
# Share of the time that is reserved for preparation, validation, evaluation and export.
REST = 0.25
# The learning rate relative to that of new weights if training starts from trained ones.
FINE_TUNING = 0.25


@dataclass(frozen=True)
class Choice:
    """A configuration, and a sentence for each decision."""

    config: Config
    reasons: tuple[str, ...]


def choose(own: OwnData, base: Config, deadline: float, side: int | None = None) -> Choice:
    """Chooses a configuration by the size and number of images, and by the speed of this machine.

    Args:
        own: the data, read.
        base: the configuration of a modern recipe, with the path of the data.
        deadline: when everything should have ended, in seconds of `time.monotonic`.
        side: side of the input in pixels; None chooses it.

    Returns:
        The choice.

    Raises:
        UserError: there are too few training images.
    """
    train = own.counts["train"]
    if train < 2:
        raise UserError(f"{own.source} has {train} training images. Expected at least 2.")
    config, reason = _batched(base, train, "images")
    batch, reasons = config.batch_size, [reason]
    config, sources = _weights(config, own)
    reasons += sources
    if own.found.multi_label:
        config = config.model_copy(update={"label_smoothing": 0.0})
        reasons.append("no label smoothing, which would raise the probability of rare classes")
    shorter = float(np.median([min(image.size) for image in own.found.images]))
    fitting = [side] if side else [one for one in SIDES if one <= max(shorter, SIDES[0])]

    def epoch(size: int) -> float:
        """Measures the seconds of an epoch."""
        shape = (size, size, 1 if own.found.is_grey else 3)
        labels, multi_label = own.found.labels, own.found.multi_label
        info = DataInfo(own.name, "1.0.0", shape, labels, {"train": train}, multi_label=multi_label)
        return train // batch * seconds_per_step(_sized(config, size), info)

    size, seconds = _affordable(fitting, epoch, deadline)
    epochs = int(np.clip(_training_time(deadline) / seconds, FEWEST, MOST))
    if side is None:
        reasons.append(f"inputs of {size} x {size} pixels: the median of the images' shorter sides is {shorter:.0f}")
    reasons.append(f"{epochs} epochs of about {seconds:.1f} s")
    return Choice(_sized(config, size).model_copy(update={"epochs": epochs}), tuple(reasons))


def _affordable(sizes: Sequence[int], epoch: Callable[[int], float], deadline: float) -> tuple[int, float]:
    """Returns the largest size with time for enough epochs, or the smallest, and the seconds of an epoch."""
    smallest = sizes[0]
    seconds = epoch(smallest)
    # A net of its own is compiled for each measurement, so sizes that are sure to take too long are not measured.
    for size in reversed(sizes[1:]):
        enough = _training_time(deadline) / ENOUGH
        if seconds * (size / smallest) ** 2 <= enough and (larger := epoch(size)) <= enough:
            return size, larger
    return smallest, seconds


def _training_time(deadline: float) -> float:
    return (1 - REST) * (deadline - time.monotonic())


def choose_for_table(table: TableData, base: Config, deadline: float) -> Choice:
    """Chooses batch size and epochs for a table by its number of rows, and by the speed of this machine.

    Args:
        table: the table, read.
        base: the configuration of the recipe for tables.
        deadline: see `choose`.

    Returns:
        The choice.
    """
    train = table.counts["train"]
    config, reason = _batched(base, train, "rows")
    steps = train // config.batch_size
    info = DataInfo(
        "table",
        "1.0.0",
        table.features.shape[1:],
        table.labels,
        {"train": train},
        table.columns,
        multi_label=table.multi_label,
    )
    seconds = steps * seconds_per_step(config, info)
    epochs = int(np.clip(TABLE_STEPS // steps, TABLE_FEWEST, TABLE_MOST))
    epochs = min(epochs, max(TABLE_FEWEST, int(_training_time(deadline) / seconds)))
    reasons = reason, f"{epochs} epochs, {epochs * steps:,} steps in all"
    return Choice(config.model_copy(update={"epochs": epochs}), reasons)


def _batched(base: Config, train: int, examples: str) -> tuple[Config, str]:
    """Chooses the batch size by the number of training examples, and the learning rate by the batch size."""
    batch = int(np.clip(train // STEPS, min(train, 16), BATCH))
    rate = base.optimizer.learning_rate * math.sqrt(batch / base.batch_size)
    optimizer = base.optimizer.model_copy(update={"learning_rate": rate})
    steps = f"{train // batch} steps per epoch for {train:,} {examples}"
    reason = f"batch size {batch}: {steps}, with a learning rate to match"
    return base.model_copy(update={"batch_size": batch, "optimizer": optimizer}), reason


def seconds_per_step(config: Config, info: DataInfo, steps: int = 3) -> float:
    """Measures the time of a training step on random inputs; the first step, which compiles, is not counted."""
    from pipelines.core import environment
    from pipelines.training.net import build, compiled
    from pipelines.training.precision import resolve

    machine = environment.machine()
    net = build(config, info, "float32")
    policy = resolve(config.precision, net, machine).policy
    config = config.model_copy(update={"start_from": None})
    accelerated = bool(machine.accelerators)
    model: Any = compiled(build(config, info, policy), config, policy, STEPS, accelerated, task=info.task)
    random = np.random.default_rng(0)
    images = random.normal(size=(config.batch_size, *info.inputs)).astype("float32")
    targets = random.normal(size=(config.batch_size, 1)).astype("float32")
    if info.labels:
        classes = random.integers(len(info.labels), size=config.batch_size)
        targets = np.eye(len(info.labels), dtype="float32")[classes]
    model.train_on_batch(images, targets)
    started = time.perf_counter()
    for _ in range(steps):
        model.train_on_batch(images, targets)
    return (time.perf_counter() - started) / steps


def _weights(config: Config, own: OwnData) -> tuple[Config, Sequence[str]]:
    """Starts from weights trained on photographs, if the net has any; they take colour images."""
    if own.found.is_grey:
        # Characters and scans change meaning when mirrored.
        augment = config.augment.model_copy(update={"mirror": False})
        reason = "grey images are not mirrored, because they may show characters"
        return config.model_copy(update={"augment": augment}), [reason]
    if config.model.preset not in pretrained():
        return config, []
    optimizer = config.optimizer.model_copy(update={"learning_rate": FINE_TUNING * config.optimizer.learning_rate})
    changed = config.model_copy(update={"start_from": config.model.preset, "optimizer": optimizer})
    return changed, [f"training starts from the weights of {config.model.preset}, which was trained on photographs"]


def _sized(config: Config, side: int) -> Config:
    """Changes the size of the input, and the augmentation with it."""
    augment = config.augment.model_copy(update={"pad": side // 8, "cutout": side // 4})
    return config.model_copy(update={"image_size": (side,), "augment": augment})
