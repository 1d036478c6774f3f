"""Keras callbacks of a training run: counting, saving, stopping, probing."""

import math
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import numpy as np

from highway_keras.callbacks import MeanGates
from pipelines.core.errors import StoppedError
from pipelines.core.files import replacing
from pipelines.core.run import FILES, Run, resuming
from pipelines.core.signals import StopRequest
from pipelines.training import checkpoint, metrics_file, schedules
from pipelines.training.checkpoint import Progress, SaveTimer
from pipelines.training.metrics_file import plain_loss_in
from pipelines.training.optimizers import averaged
from pipelines.training.probe import Probe
from pipelines.training.tensorboard_log import TensorBoardLog

CHECKPOINTS = "checkpoint"
STEPS_FILE = "steps.csv"
# Fewest rows of steps.csv per epoch; epochs with fewer than two steps per row have none.
STEP_ROWS = 20
# About how many microseconds pass until several processes ask each other for signals again.
NOTICE = 500_000
SCORES = ("loss", "accuracy", "label_accuracy", "f1", "cross_entropy", "mae", "mse")
FIRST = ("learning_rate", *SCORES, *(f"val_{name}" for name in SCORES))


class DivergedError(Exception):
    """The loss is no longer finite.

    Args:
        step: step at which this was noticed, counted from 1.
    """

    def __init__(self, step: int) -> None:
        super().__init__(f"the loss is not finite at step {step}")
        self.step = step


class StepCounter(keras.callbacks.Callback):
    """Counts steps for the callbacks after it: after a resume in mid-epoch, Keras counts that epoch's steps from 0.

    Args:
        progress: the progress of the run; changed in place.
        metrics: running metrics of the first epoch, if the run resumes in mid-epoch.
    """

    def __init__(self, progress: Progress, metrics: Sequence[np.ndarray]) -> None:
        super().__init__()
        self.progress = progress
        self.metrics = metrics

    def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook, called just after Keras has reset the metrics."""
        self.first = self.progress.step
        if self.metrics:
            for variable, value in zip(checkpoint.metrics_variables(self.model), self.metrics, strict=True):
                variable.assign(value)
            self.metrics = ()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del logs
        self.progress.step = self.first + batch + 1


class StepCurve(keras.callbacks.Callback):
    """Writes metrics within long epochs to a table and to TensorBoard, as means since the start of the epoch.

    A row is on disk before the state of its step, and a resumed run drops the rows after its checkpoint.

    Args:
        path: the table.
        progress: the progress of the run.
        steps_per_epoch: steps in an epoch; short epochs have no rows.
        tensorboard: the TensorBoard log.
    """

    def __init__(self, path: Path, progress: Progress, steps_per_epoch: int, tensorboard: TensorBoardLog) -> None:
        super().__init__()
        self.path = path
        self.progress = progress
        self.every = steps_per_epoch // STEP_ROWS
        self.tensorboard = tensorboard
        self.before = progress.step

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        del batch
        before, self.before = self.before, self.progress.step
        if self.every > 1 and before // self.every < self.progress.step // self.every:
            row = {"step": float(self.progress.step)} | {name: float(value) for name, value in (logs or {}).items()}
            metrics_file.append(self.path, row)
            self.tensorboard.add_step(row)


class StopOnNaN(keras.callbacks.Callback):
    """Raises `DivergedError` when the loss is no longer finite, before that step is saved.

    Args:
        progress: the progress of the run.
    """

    def __init__(self, progress: Progress) -> None:
        super().__init__()
        self.progress = progress

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        del batch
        # The loss in the logs is the mean over the epoch so far, so it never becomes finite again.
        if logs and not math.isfinite(float(logs["loss"])):
            raise DivergedError(self.progress.step)


class StopEarly(keras.callbacks.Callback):
    """Ends training after an epoch if `is_over`; comes after `SaveRun`.

    Args:
        run: the run directory.
        progress: the progress of the run.
    """

    def __init__(self, run: Run, progress: Progress) -> None:
        super().__init__()
        self.run = run
        self.progress = progress

    def on_epoch_end(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.model.stop_training = is_over(self.run, self.progress)


def is_over(run: Run, progress: Progress) -> bool:
    """Returns whether no step is left: all are done, or the score last improved at least `patience` epochs ago."""
    epochs, patience = progress.step // run.record.steps_per_epoch, run.config.patience
    return epochs >= run.config.epochs or (patience > 0 and epochs - progress.improved_epoch >= patience)


class ValidateAveraged(keras.callbacks.Callback):
    """Validates with the moving average of the weights."""

    def on_test_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.average = ExitStack()
        self.average.enter_context(averaged(self.model))

    def on_test_end(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.average.close()


class AveragedGates(MeanGates):
    """Logs the mean gates of the moving average of the weights; without one, those of the weights."""

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras's hook."""
        with averaged(self.model):
            super().on_epoch_end(epoch, logs)


class ResetWatchdog(keras.callbacks.Callback):
    """Starts a watchdog with training, and resets it after every execution of training or validation and every epoch.

    Args:
        reset: resets the watchdog.
    """

    def __init__(self, reset: Callable[[], None]) -> None:
        super().__init__()
        self.reset = reset

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.reset()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.reset()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.reset()

    def on_epoch_end(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.reset()


class ProbeCallback(keras.callbacks.Callback):
    """Writes a row of measurements for each probed step, without changing training.

    It comes after the step counter and before the callback that saves. A row is therefore on disk before the state of
    its step, and as a resumed run drops the rows after its checkpoint, an interrupted run ends with the same rows.

    Args:
        path: the table.
        net: the net without loss and optimizer, which shares its weights with the trained model. Running it does not
            touch the epoch's metrics.
        progress: the progress of the run.
        probe: the measurements and their steps.
    """

    def __init__(self, path: Path, net: keras.Model, progress: Progress, probe: Probe) -> None:
        super().__init__()
        self.path = path
        self.net = net
        self.progress = progress
        self.probe = probe
        self.before = progress.step

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        if not self.progress.step and 0 in self.probe.steps:
            self._measure()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        before, self.before = self.before, self.progress.step
        if any(before < step <= self.progress.step for step in self.probe.steps):
            self._measure()

    def _measure(self) -> None:
        # On JAX, accessing the model brings its weights up to date.
        _ = self.model
        metrics_file.append(self.path, {"step": self.progress.step, **self.probe.measure(self.net)})


class SaveRun(keras.callbacks.Callback):
    """Saves every epoch, and saves the training state when due, after the last step, and before a signal ends the run.

    For an epoch it writes a row of metrics.csv, TensorBoard curves, best.keras if the epoch is the best so far, and
    run.json. The state comes last: a run that is killed before then repeats the epoch and writes the same files again.
    Of several processes only the first one writes, and a signal to any of them ends all after the same step. They ask
    each other for signals about twice a second if steps are shorter, and after every step of their first epoch.

    Args:
        run: the run directory.
        net: the net without loss and optimizer, which shares its weights with the trained model.
        progress: the progress of the run; changed in place.
        timer: decides when the state is due.
        stop: the request to end the run.
        tensorboard: the TensorBoard log; None in a process that does not write.
        highest: returns the highest of the numbers that all processes pass; None for a single process.
        again: further options of the command that resumes the run, for messages.
    """

    def __init__(
        self,
        run: Run,
        net: keras.Model,
        progress: Progress,
        *,
        timer: SaveTimer,
        stop: StopRequest,
        tensorboard: TensorBoardLog | None,
        highest: Callable[[int], int] | None = None,
        again: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.run = run
        self.net = net
        self.progress = progress
        self.timer = timer
        self.stop = stop
        self.tensorboard = tensorboard
        self.highest = highest
        self.again = again
        self.asked, self.every = progress.step, 1
        self.origin = checkpoint.origin(run)
        self.steps = run.config.epochs * run.record.steps_per_epoch
        self.schedule = schedules.rate(run.config.schedule, run.config.optimizer.learning_rate, self.steps)
        self.since = time.perf_counter()
        # Of the first and the last execution of the epoch so far: step and time at its end.
        self.ends: list[tuple[int, float]] = []

    def on_epoch_begin(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.ends = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        if self.highest:
            self.ends = [*self.ends[:1], (self.progress.step, time.perf_counter())]
        # The last step of an epoch is left to `on_epoch_end`, which has more than the state to save.
        if self.progress.step % self.run.record.steps_per_epoch:
            self._save_if_due()

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Keras's hook."""
        logs = {} if logs is None else logs
        logs["learning_rate"] = self._rate()
        self._count_seconds()
        progress = self.progress
        scores = {name: float(value) for name, value in logs.items()}
        row = {"epoch": epoch + 1, "step": progress.step, "seconds": progress.seconds}
        row |= {name: scores[name] for name in FIRST if name in scores}
        row |= scores
        if self.tensorboard:
            metrics_file.append(self.run.path / "metrics.csv", row)
            self.tensorboard.add(row)
        # Without an accuracy of one class each, the best epoch has the lowest validation loss, not the lowest penalty.
        loss = scores.get(f"val_{plain_loss_in(scores)}", math.inf)
        score = scores.get("val_accuracy", -loss)
        # Few validation examples give many epochs the same accuracy, and the first of them may have hardly learned.
        better = score > progress.best
        if better:
            progress.improved_epoch = epoch + 1
        # Processes whose scores differ by rounding must still end together, also when they resume.
        if self.highest:
            progress.improved_epoch = self.highest(progress.improved_epoch)
            self.every = max(1, NOTICE // self.highest(self._step_time()))
        if better or (score == progress.best and loss < progress.best_loss):
            progress.best, progress.best_loss = score, loss
            progress.best_epoch = epoch + 1
            if self.run.writes:
                with averaged(self.model), replacing(self.run.path / FILES["best"]) as aside:
                    self.net.save(aside)
        record(self.run, progress)
        self._save_if_due()

    def _rate(self) -> float:
        """Returns the learning rate of the last step; that of Keras's optimizer is for the next one."""
        optimizer = self.model.optimizer
        rate = optimizer.learning_rate
        if callable(self.schedule):
            # Not the step of the run: loss scaling skips updates.
            rate = self.schedule(int(keras.ops.convert_to_numpy(optimizer.iterations)) - 1)
        return float(keras.ops.convert_to_numpy(rate))

    def _step_time(self) -> int:
        """Returns the microseconds of a step after the first execution of the epoch; `NOTICE` if there was no other."""
        if len(self.ends) < 2:
            return NOTICE
        (first, began), (last, ended) = self.ends
        # Longer steps make no difference, and processes exchange numbers of 31 bits.
        return min(max(1, math.ceil(1e6 * (ended - began) / (last - first))), NOTICE)

    def _save_if_due(self) -> None:
        step, number = self.progress.step, self.stop.by or 0
        if self.highest:
            # All processes ask after the same steps. Asking means waiting for the slowest one.
            ask = step - self.asked >= self.every or not step % self.run.record.steps_per_epoch
            number = self.highest(number) if ask else 0
            self.asked = step if ask else self.asked
        if self.run.writes and (number or is_over(self.run, self.progress) or self.timer.due(step)):
            self._count_seconds()
            started = time.perf_counter()
            # On JAX, accessing the model also brings its variables up to date.
            checkpoint.save(self.run.path / CHECKPOINTS, self.model, self.progress, self.origin)
            # Also within an epoch: messages about a lost node name the step of the newest checkpoint.
            record(self.run, self.progress)
            self.timer.saved(step, time.perf_counter() - started)
        if number:
            by = signal.Signals(number)
            raise StoppedError(
                f"stopped by {by.name} after step {step:,} of {self.steps:,}, and saved. "
                f"Resume with: {resuming(self.run.path, self.again)}",
                by,
            )

    def _count_seconds(self) -> None:
        now = time.perf_counter()
        self.progress.seconds += now - self.since
        self.since = now


def record(run: Run, progress: Progress) -> None:
    """Writes progress and the last row of metrics.csv to run.json, unless another process does.

    Args:
        run: the run directory.
        progress: the progress of the run.
    """
    if not run.writes:
        return
    rows = metrics_file.read(run.path / "metrics.csv")
    last = rows[-1] if rows else {}
    metrics = {name: last[name] for name in FIRST if name in last}
    if progress.best_epoch:
        metrics["best_epoch"] = progress.best_epoch
        if "accuracy" in last:
            metrics["best_val_accuracy"] = progress.best
        else:
            metrics[f"best_val_{plain_loss_in(last)}"] = -progress.best
    run.update(step=progress.step, seconds=progress.seconds, metrics=metrics)
