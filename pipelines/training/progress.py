"""Progress of a training run: a bar on a terminal, a line per epoch elsewhere."""

import time
from collections.abc import Mapping
from typing import Any

import keras
from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar

from pipelines.core.console import TimeLeftColumn, say, shown_loss
from pipelines.training.checkpoint import Progress

# Fast enough for the eye, but not so fast that every step waits for the accelerator.
INTERVAL = 0.1
LINE = {
    "accuracy": "accuracy {:.2%}",
    "label_accuracy": "labels right {:.2%}",
    "f1": "macro F1 {:.3f}",
    "mae": "mean error {:.4g}",
    "val_accuracy": "validation {:.2%}",
    "val_f1": "validation {:.3f}",
    "val_mae": "validation {:.4g}",
}


class TrainingProgress(keras.callbacks.Callback):
    """Shows epoch, loss, accuracy or mean absolute error, validation score, examples per second and the time left.

    Args:
        console: where to print.
        epochs: epochs of the whole run.
        steps_per_epoch: steps per epoch.
        batch_size: examples per step.
        progress: the progress of the run.
    """

    def __init__(
        self, console: Console, epochs: int, steps_per_epoch: int, batch_size: int, progress: Progress
    ) -> None:
        super().__init__()
        self.console = console
        self.epochs = epochs
        self.steps_per_epoch = steps_per_epoch
        self.batch_size = batch_size
        self.progress = progress
        self.bar: Bar | None = None

    def __enter__(self) -> "TrainingProgress":
        if self.console.is_terminal:
            self.bar = Bar(
                TextColumn("epoch {task.fields[epoch]}"),
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[scores]}"),
                TimeLeftColumn(),
                console=self.console,
                expand=True,
            )
            self.task = self.bar.add_task(
                "train",
                total=self.epochs * self.steps_per_epoch,
                completed=self.progress.step,
                epoch=f"{self.progress.step // self.steps_per_epoch + 1}/{self.epochs}",
                scores="compiling",
            )
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar:
            self.bar.stop()

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        self.validation = ""

    def on_epoch_begin(self, epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.epoch = epoch
        self.started = self.shown = time.perf_counter()
        self.speed = 0.0
        self.counted_from: tuple[float, int] | None = None

    def on_train_batch_end(self, batch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        now = time.perf_counter()
        if self.counted_from is None:
            # The first call compiles, so its time does not count.
            self.counted_from = (now, batch)
        elif batch > self.counted_from[1]:
            since, first = self.counted_from
            self.speed = (batch - first) * self.batch_size / (now - since)
        if self.bar and logs and now - self.shown > INTERVAL:
            self.shown = now
            self.bar.update(
                self.task,
                completed=self.progress.step,
                epoch=f"{self.epoch + 1}/{self.epochs}",
                scores=self._scores(logs),
            )

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        logs = logs or {}
        if "val_accuracy" in logs:
            self.validation = f"  val {float(logs['val_accuracy']):.1%}"
        elif "val_f1" in logs or "val_mae" in logs:
            self.validation = f"  val {float(logs.get('val_f1', logs.get('val_mae'))):.3g}"
        if self.bar:
            self.bar.update(self.task, completed=(epoch + 1) * self.steps_per_epoch, scores=self._scores(logs))
        else:
            parts = [_loss(logs, digits=4)] if "loss" in logs else []
            parts += [form.format(float(logs[name])) for name, form in LINE.items() if name in logs]
            parts += [f"{self.speed:,.0f} examples/s"] if self.speed else []
            parts.append(f"{time.perf_counter() - self.started:.1f} s")
            say(self.console, f"epoch {epoch + 1}/{self.epochs}  {'  '.join(parts)}")

    def _scores(self, logs: Mapping[str, Any]) -> str:
        # Short enough to leave room for the bar on 80 columns.
        if "accuracy" in logs:
            score = f"acc {float(logs['accuracy']):.1%}"
        else:
            score = f"F1 {float(logs['f1']):.3f}" if "f1" in logs else f"error {float(logs['mae']):.3g}"
        text = f"{_loss(logs, digits=3)}  {score}{self.validation}"
        return f"{text}  {self.speed:,.0f} ex/s" if self.speed else text


def _loss(logs: Mapping[str, Any], digits: int) -> str:
    return f"loss {shown_loss(float(logs['loss']), regression='mae' in logs, digits=digits)}"
