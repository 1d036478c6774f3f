"""What a run keeps while it trains, and what stops it."""

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

import keras

from pipelines.files import replacing
from pipelines.run import FILES, Run
from pipelines.training import checkpoint, table
from pipelines.training.checkpoint import Progress
from pipelines.training.optimizers import averaged

CHECKPOINT = "checkpoint/state.npz"
FIRST = ("learning_rate", "loss", "accuracy", "mae", "val_loss", "val_accuracy", "val_mae")


class DivergedError(Exception):
    """The loss is no longer a number.

    Args:
        step: the step, counted from 1, by which it was seen.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss is not finite at step {step}")
        self.step = step


class StopOnNaN(keras.callbacks.Callback):
    """Raises `DivergedError` when the loss is no longer finite, before anything of that epoch is kept.

    Args:
        steps_per_epoch: steps in an epoch.
    """

    def __init__(self, steps_per_epoch: int) -> None:
        super().__init__()
        self.steps_per_epoch = steps_per_epoch
        self.epoch = 0

    def on_epoch_begin(self, epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        # The loss in the logs is the mean of the epoch so far: once it is not finite, it stays so.
        if logs and not math.isfinite(float(logs["loss"])):
            raise DivergedError(self.epoch * self.steps_per_epoch + batch + 1)


class ValidateAveraged(keras.callbacks.Callback):
    """Validates with the running mean of the weights instead of the weights."""

    def on_test_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.mean = ExitStack()
        self.mean.enter_context(averaged(self.model))

    def on_test_end(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.mean.close()


class KeepEpoch(keras.callbacks.Callback):
    """At the end of each epoch: a row of metrics.csv, best.keras if it is the best, the checkpoint, run.json.

    In this order, so that a run killed between any two repeats the epoch and writes the same again.

    Args:
        run: the run directory.
        net: the net alone, without loss and optimiser; it shares its weights with the model that is trained.
        progress: where the run stands; changed in place.
    """

    def __init__(self, run: Run, net: keras.Model, progress: Progress) -> None:
        super().__init__()
        self.run = run
        self.net = net
        self.progress = progress
        self.since = time.perf_counter()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras's hook."""
        logs = {} if logs is None else logs
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        now = time.perf_counter()
        progress = self.progress
        progress.epoch = epoch + 1
        progress.seconds += now - self.since
        self.since = now
        step = progress.epoch * self.run.record.steps_per_epoch
        scores = {name: float(value) for name, value in logs.items()}
        row = {"epoch": progress.epoch, "step": step, "seconds": progress.seconds}
        row |= {name: scores[name] for name in FIRST if name in scores}
        table.append(self.run.path / "metrics.csv", row | scores)
        # Of a regression, which has no accuracy, the epoch with the lowest validation loss is the best.
        score = scores.get("val_accuracy", -scores.get("val_loss", math.inf))
        if score > progress.best:
            progress.best = score
            progress.best_epoch = progress.epoch
            with averaged(self.model), replacing(self.run.path / FILES["best"]) as aside:
                self.net.save(aside)
        checkpoint.save(self.run.path / CHECKPOINT, self.model, progress)
        record(self.run, progress)


def record(run: Run, progress: Progress) -> None:
    """Puts into run.json where the run stands, by its checkpoint and the last row of metrics.csv.

    Args:
        run: the run directory.
        progress: what the checkpoint holds.
    """
    *_, last = table.read(run.path / "metrics.csv")
    metrics = {name: last[name] for name in FIRST if name in last}
    if progress.best_epoch:
        metrics["best_epoch"] = progress.best_epoch
        metrics |= {"best_val_accuracy": progress.best} if "accuracy" in last else {"best_val_loss": -progress.best}
    run.update(step=progress.epoch * run.record.steps_per_epoch, seconds=progress.seconds, metrics=metrics)
