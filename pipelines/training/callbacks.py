"""What a run keeps while it trains, and what stops it."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import keras
import numpy as np

from pipelines.core.errors import StoppedError
from pipelines.core.files import replacing
from pipelines.core.run import FILES, Run
from pipelines.training import checkpoint, table
from pipelines.training.checkpoint import Progress
from pipelines.training.intervals import Saves
from pipelines.training.optimizers import averaged
from pipelines.training.stopping import Stop
from pipelines.training.tensorboard_log import Curves

CHECKPOINTS = "checkpoint"
FIRST = ("learning_rate", "loss", "accuracy", "mae", "val_loss", "val_accuracy", "val_mae")


class DivergedError(Exception):
    """The loss is no longer a number.

    Args:
        step: the step, counted from 1, by which it was seen.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss is not finite at step {step}")
        self.step = step


class Count(keras.callbacks.Callback):
    """Counts steps, for all callbacks after it: Keras counts those of an epoch from 0, wherever a run goes on.

    Args:
        progress: where the run stands; changed in place.
        metrics: running metrics of the first epoch, where the run goes on in the middle of it.
    """

    def __init__(self, progress: Progress, metrics: Sequence[np.ndarray]) -> None:
        super().__init__()
        self.progress = progress
        self.metrics = metrics

    def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook; it has just reset the metrics."""
        self.first = self.progress.step
        if self.metrics:
            restore(self.model, self.metrics)
            self.metrics = ()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del logs
        self.progress.step = self.first + batch + 1


def restore(model: keras.Model, metrics: Sequence[np.ndarray]) -> None:
    """Gives the running metrics of a compiled model the values that they had.

    Args:
        model: the model.
        metrics: one value for each of `model.metrics_variables`.
    """
    # On TensorFlow Keras makes them in the first step; so they are made here, with what does not matter.
    nothing = np.zeros((1, *model.output_shape[1:]), "float32")
    model.compute_metrics(None, nothing, nothing)
    for variable, value in zip(model.metrics_variables, metrics, strict=True):
        variable.assign(value)


class StopOnNaN(keras.callbacks.Callback):
    """Raises `DivergedError` when the loss is no longer finite, before anything of that step is kept.

    Args:
        progress: where the run stands.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        del batch
        # The loss in the logs is the mean of the epoch so far: once it is not finite, it stays so.
        if logs and not math.isfinite(float(logs["loss"])):
            raise DivergedError(self.progress.step)


class ValidateAveraged(keras.callbacks.Callback):
    """Validates with the running mean of the weights instead of the weights."""

    def on_test_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.mean = ExitStack()
        self.mean.enter_context(averaged(self.model))

    def on_test_end(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.mean.close()


class Keep(keras.callbacks.Callback):
    """Keeps each epoch, and the state whenever it is due, after the last step, and before a signal's end.

    Of an epoch: a row of metrics.csv, its curves, best.keras if it is the best, run.json, and the state last, so that
    a run that is killed before it repeats the epoch and writes the same again.

    Args:
        run: the run directory.
        net: the net alone, without loss and optimiser; it shares its weights with the model that is trained.
        progress: where the run stands; changed in place.
        saves: when the state is due.
        stop: whether the run is asked to end.
        curves: where those of each epoch go.
    """

    def __init__(
        self, run: Run, net: keras.Model, progress: Progress, *, saves: Saves, stop: Stop, curves: Curves
    ) -> None:
        super().__init__()
        self.run = run
        self.net = net
        self.progress = progress
        self.saves = saves
        self.stop = stop
        self.curves = curves
        self.belongs_to = checkpoint.origin(run)
        self.steps = run.config.epochs * run.record.steps_per_epoch
        self.since = time.perf_counter()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        # After the last step of an epoch there is more to keep than the state.
        if self.progress.step % self.run.record.steps_per_epoch:
            self._save_if_due()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras's hook."""
        logs = {} if logs is None else logs
        logs["learning_rate"] = float(keras.ops.convert_to_numpy(self.model.optimizer.learning_rate))
        self._count_seconds()
        progress = self.progress
        scores = {name: float(value) for name, value in logs.items()}
        row = {"epoch": epoch + 1, "step": progress.step, "seconds": progress.seconds}
        row |= {name: scores[name] for name in FIRST if name in scores}
        row |= scores
        table.append(self.run.path / "metrics.csv", row)
        self.curves.add(row)
        # Of a regression, which has no accuracy, the epoch with the lowest validation loss is the best.
        score = scores.get("val_accuracy", -scores.get("val_loss", math.inf))
        if score > progress.best:
            progress.best = score
            progress.best_epoch = epoch + 1
            with averaged(self.model), replacing(self.run.path / FILES["best"]) as aside:
                self.net.save(aside)
        record(self.run, progress)
        self._save_if_due()

    def _save_if_due(self) -> None:
        step = self.progress.step
        if self.stop.by or step == self.steps or self.saves.due(step):
            self._count_seconds()
            started = time.perf_counter()
            # On JAX asking for the model also brings the variables up to this step.
            checkpoint.save(self.run.path / CHECKPOINTS, self.model, self.progress, self.belongs_to)
            self.saves.done(step, time.perf_counter() - started)
        if self.stop.by:
            record(self.run, self.progress)
            raise StoppedError(
                f"stopped by {self.stop.by.name} after step {step:,} of {self.steps:,}, and saved. "
                f"Go on with: highway train --resume {self.run.path}",
                self.stop.by,
            )

    def _count_seconds(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self.since
        self.since = now


def record(run: Run, progress: Progress) -> None:
    """Puts into run.json where the run stands, and the last row of metrics.csv.

    Args:
        run: the run directory.
        progress: where the run stands.
    """
    rows = table.read(run.path / "metrics.csv")
    last = rows[-1] if rows else {}
    metrics = {name: last[name] for name in FIRST if name in last}
    if progress.best_epoch:
        metrics["best_epoch"] = progress.best_epoch
        metrics |= {"best_val_accuracy": progress.best} if "accuracy" in last else {"best_val_loss": -progress.best}
    run.update(step=progress.step, seconds=progress.seconds, metrics=metrics)
