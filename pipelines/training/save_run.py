"""The Keras callback that saves a run while it is trained."""

import math
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras

from pipelines.core.errors import StoppedError
from pipelines.core.files import replacing
from pipelines.core.run import FILES, Run, resuming
from pipelines.core.signals import StopRequest
from pipelines.training import checkpoint, metrics_file, schedules
from pipelines.training.callbacks import is_over
from pipelines.training.checkpoint import Progress, SaveTimer
from pipelines.training.checkpoint_file import CHECKPOINTS
from pipelines.training.metrics_file import plain_loss_in
from pipelines.training.optimizers import averaged
from pipelines.training.tensorboard_log import TensorBoardLog

# About how many microseconds pass until several processes ask each other for signals again.
NOTICE = 500_000
SCORES = ("loss", "accuracy", "label_accuracy", "f1", "cross_entropy", "mae", "mse")
FIRST = ("learning_rate", *SCORES, *(f"val_{name}" for name in SCORES))


class SaveRun(keras.callbacks.Callback):
    """Saves every epoch, and saves the training state when due, after the last step, and before a signal ends the run.

    For an epoch it writes a row of metrics.csv, TensorBoard curves, and best.keras if the epoch is the best so far. The
    state follows: a run that is killed before then repeats the epoch and writes the same files again. run.json comes
    last, because it must not count steps whose state was due and is not saved. Of several processes only the first one
    writes, and a signal to any of them ends all after the same step. They ask each other for signals about twice a
    second if steps are shorter, and after every step of their first epoch.

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
        ends_epoch = not step % self.run.record.steps_per_epoch
        if self.highest:
            # All processes ask after the same steps. Asking means waiting for the slowest one.
            ask = step - self.asked >= self.every or ends_epoch
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
        elif ends_epoch:
            record(self.run, self.progress)
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
