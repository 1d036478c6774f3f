"""Trials: runs trained to their end or to the end of their Hyperband rung, and reasons to stop them early."""

import io
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import keras
from rich.console import Console

from highway_keras.layers.equations import gate_slope
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.run import Run, locked, open_run
from pipelines.data import sources
from pipelines.training import launch, metrics_file
from pipelines.training.callbacks import ResetWatchdog
from pipelines.training.checkpoint import Interval
from pipelines.training.net import plain_loss
from pipelines.tuning.search_state import Objective

LEAST_SLOPE = {"float32": 1.2e-38, "mixed_bfloat16": 1.2e-38, "mixed_float16": 6e-8}
"""Slope T * (1 - T) of a gate below which its gradient underflows in each precision, with denormals flushed to 0."""


class HopelessError(UserError):
    """A trial cannot produce a useful result."""


class RungEndError(Exception):
    """A trial has reached the end of its Hyperband rung."""


class StopOnDeadGates(keras.callbacks.Callback):
    """Raises `HopelessError` once the gates of all layers are so saturated that none receives a gradient.

    Args:
        path: the run directory, which records precision and initial gates.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        record = open_run(self.path).record
        self.least = LEAST_SLOPE[record.precision.policy]
        self._check(record.gates, "before training")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        gates = {name: float(value) for name, value in (logs or {}).items() if name.startswith("gate/")}
        self._check(gates, f"after epoch {epoch + 1}")

    def _check(self, gates: Mapping[str, float], when: str) -> None:
        if gates and all(gate_slope(mean) < self.least for mean in gates.values()):
            state = "shut" if min(gates.values()) < 0.5 else "open"
            raise HopelessError(f"dead gates: all {len(gates)} layers are {state} {when}")


class StopAfter(keras.callbacks.Callback):
    """Raises `RungEndError` after a given epoch.

    Args:
        epochs: epochs at the end of the rung.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        if epoch + 1 >= self.epochs:
            raise RungEndError


def objective(config: Config, data_dir: Path | None) -> Objective:
    """Returns the objective of a search: validation accuracy, or for other tasks the validation loss.

    That loss has no label smoothing and penalties, in which trials differ.

    Raises:
        UserError: the data are not available, or there are no validation examples.
    """
    info = sources.describe(config.data, data_dir, config.validation)
    if not info.counts["validation"]:
        count = info.counts["train"]
        held_out = f"Hold out some of the {count:,} training examples: --validation {max(1, count // 12)}."
        raise UserError(
            f"{info.name} has no validation examples, and a search never reads the test split. "
            f"{held_out if info.labels else 'Prepare the data with a split of this name.'}"
        )
    if info.task == "classification":
        return Objective("val_accuracy", "max")
    return Objective(f"val_{plain_loss(info.task, config.model.preset)}", "min")


def train(
    config: Config,
    path: Path,
    data_dir: Path | None,
    epochs: int | None,
    wanted: Objective,
    *,
    reset_watchdog: Callable[[], None],
) -> float:
    """Trains a trial and returns its score.

    A trial resumes from its checkpoint if its worker died or if a Hyperband rung paused it.

    Args:
        config: configuration of the trial.
        path: run directory of the trial.
        data_dir: folder of prepared data; None for the TFDS default.
        epochs: number of epochs after which to pause; None for the end.
        wanted: the objective.
        reset_watchdog: called after every execution of training and validation.

    Returns:
        The objective of the best epoch.

    Raises:
        HopelessError: the gates are dead, or the loss is not finite.
        UserError: the configuration cannot be trained.
    """
    pausing = epochs is not None and epochs < config.epochs
    callbacks = [ResetWatchdog(reset_watchdog), StopOnDeadGates(path)]
    callbacks += [StopAfter(epochs)] if pausing and epochs else []
    # The next rung resumes from the state at the end of this one.
    interval: Interval = _steps_per_epoch(config, data_dir) if pausing else "auto"
    options = launch.Options(data_dir, Console(file=io.StringIO()), interval, callbacks)
    try:
        if not path.exists():
            launch.start(config, path, options)
        elif (run := _free(path)).record.state == "running" and not (epochs and _done(run) >= epochs):
            launch.resume(path, options)
    except RungEndError:
        pass
    except UserError:
        if path.exists() and open_run(path).record.state == "diverged":
            raise HopelessError("the loss is no longer finite") from None
        raise
    if open_run(path).record.state == "diverged":
        raise HopelessError("the loss is no longer finite")
    scores = [row[wanted.name] for row in metrics_file.read(path / "metrics.csv")]
    finite = [score for score in scores[:epochs] if math.isfinite(score)]
    if not finite:
        raise HopelessError(f"{wanted.name} is not finite in any epoch")
    return min(finite, key=wanted.key)


def _free(path: Path) -> Run:
    """Waits until no other worker trains in a run directory: a worker that counts as lost may only be slow."""
    while True:
        run = open_run(path)
        try:
            with locked(run):
                return open_run(path)
        except UserError:
            time.sleep(1)


def _steps_per_epoch(config: Config, data_dir: Path | None) -> int:
    counts = sources.describe(config.data, data_dir, config.validation, config.subset).counts
    return max(1, counts["train"] // config.batch_size)


def _done(run: Run) -> int:
    return run.record.step // run.record.steps_per_epoch
