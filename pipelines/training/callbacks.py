"""Keras callbacks of a training run: counting, stopping, probing; `pipelines.training.save_run` saves."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import keras
import numpy as np

from highway_keras.callbacks import MeanGates
from pipelines.core.run import Run
from pipelines.training import checkpoint, metrics_file
from pipelines.training.checkpoint import Progress
from pipelines.training.optimizers import averaged
from pipelines.training.probe import Probe
from pipelines.training.tensorboard_log import TensorBoardLog

STEPS_FILE = "steps.csv"
# Fewest rows of steps.csv per epoch; epochs with fewer than two steps per row have none.
STEP_ROWS = 20


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
    """Returns whether no step is left: all are done, or the score last improved at least `patience` epochs ago.

    Epochs with smaller images do not count, so that no net ends without having seen images of full size.
    """
    epochs, patience = progress.step // run.record.steps_per_epoch, run.config.patience
    improved = max(progress.improved_epoch, run.config.small_epochs)
    return epochs >= run.config.epochs or (patience > 0 and epochs - improved >= patience)


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
