"""Finds a learning rate: raises it step by step, and watches the loss fall and diverge."""

import math
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from pipelines.core.config import Config
from pipelines.core.console import TimeLeftColumn
from pipelines.core.errors import UserError
from pipelines.core.optimizers import ConstantSchedule
from pipelines.core.plotting import BLUE, GREY, ORANGE, saved
from pipelines.data import batches, sources
from pipelines.data.own import prepare as own
from pipelines.training.assembly import assemble
from pipelines.training.net import compiled
from pipelines.training.whitening import whiten

# Learning rates of the first and the last step.
LOWEST, HIGHEST = 1e-6, 10.0
STEPS = 150
# Share of the past in the smoothed loss, as in the reference.
PAST = 0.9
# Multiple of the lowest smoothed loss at which training has diverged.
DIVERGED = 4.0
# Suggested rate, as a share of the rate with the lowest loss: at that rate itself, the net no longer learns.
SAFE = 0.1


class RateSweep(NamedTuple):
    """Losses at rising learning rates."""

    rates: np.ndarray
    """Learning rate of each step, float [steps]."""
    losses: np.ndarray
    """Loss of each step's batch before its update, smoothed, float [steps]."""

    @property
    def suggested(self) -> float:
        """Suggested learning rate: a tenth of the one with the lowest loss, with two digits."""
        return float(f"{SAFE * self.rates[np.argmin(self.losses)]:.1e}")


def sweep(config: Config, data_dir: Path | None, console: Console, steps: int | None = None) -> RateSweep:
    """Trains a new net with exponentially rising learning rates until its loss diverges. Nothing is saved.

    Args:
        config: net, data and optimizer; its learning rate and schedule are not used.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress.
        steps: number of steps at most; None for 150.

    Raises:
        UserError: the data are not available, the net cannot be built, or its loss is not finite from the start.

    Example:
        sweep(recipes.get("demo").config, None, Console()).suggested

    Reference:
        Smith 2015, "Cyclical Learning Rates for Training Neural Networks", arXiv 1506.01186, section 3.3.
    """
    steps = steps or STEPS
    config = own.resolved(config, data_dir, console)
    config = config.model_copy(update={"steps_per_execution": 1, "schedule": ConstantSchedule()})
    ready = assemble(config, data_dir)
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    growth = (HIGHEST / LOWEST) ** (1 / (steps - 1))
    rising = keras.optimizers.schedules.ExponentialDecay(LOWEST, decay_steps=1, decay_rate=growth)
    accelerated = bool(ready.machine.accelerators)
    task = ready.data.task
    model = compiled(ready.net, config, ready.precision.policy, steps, accelerated, task=task, rate=rising)
    fitted = batches.fit_preprocess(config, examples, ready.data.columns)
    if config.model.whitened:
        whiten(ready.net, examples, fitted)
    dataset = batches.of_config(config, examples, fitted, classes=len(ready.data.labels), steps=steps)
    columns = TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeLeftColumn()
    with Progress(*columns, console=console, transient=True) as progress:
        recorder = Recorder(progress, steps)
        model.fit(dataset, epochs=1, steps_per_epoch=steps, callbacks=[recorder], shuffle=False, verbose=0)
    losses = np.array(recorder.smoothed)
    if not len(losses):
        raise UserError(
            f"the loss of {config.recipe} is not finite before the first step. Check the data and the scale."
        )
    return RateSweep(LOWEST * growth ** np.arange(len(losses)), losses)


class Recorder(keras.callbacks.Callback):
    """Records the smoothed loss of each step, and ends training when it diverges.

    Args:
        progress: shows how many steps are done.
        steps: number of steps at most.
    """

    def __init__(self, progress: Progress, steps: int) -> None:
        super().__init__()
        self.progress, self.task = progress, progress.add_task("raising the learning rate", total=steps)
        self.smoothed: list[float] = []
        self.mean = self.past = 0.0

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook; the loss in the logs is the mean over all steps so far."""
        mean = float(logs["loss"])
        loss = mean * (batch + 1) - self.mean * batch
        if not math.isfinite(loss):
            self.model.stop_training = True
            return
        self.mean, self.past = mean, PAST * self.past + (1 - PAST) * loss
        # Without the correction, the first values would be too small.
        self.smoothed.append(self.past / (1 - PAST ** (batch + 1)))
        self.progress.advance(self.task)
        self.model.stop_training = self.smoothed[-1] > DIVERGED * min(self.smoothed)


def draw(found: RateSweep, config: Config, path: Path) -> None:
    """Draws the loss over the learning rate, with the suggested rate and the configuration's own.

    Args:
        found: the losses.
        config: the configuration.
        path: the figure to write.
    """
    with saved(path, (7, 4.2)) as figure:
        axes = figure.subplots()
        axes.plot(found.rates, found.losses, color=BLUE)
        for rate, colour, name in (
            (found.suggested, ORANGE, "suggested"),
            (config.optimizer.learning_rate, GREY, "recipe"),
        ):
            axes.axvline(rate, color=colour, ls="--", label=f"{name}: {rate:g}")
        low, high = found.losses.min(), found.losses[: np.argmin(found.losses) + 1].max()
        axes.set(xscale="log", xlabel="learning rate", ylabel="smoothed training loss")
        axes.set_ylim(low - 0.1 * (high - low), high + 0.3 * (high - low))
        axes.set_title(f"{config.recipe}: loss at rising learning rates")
        axes.legend()
