"""One trial: a run directory trained to its end, or for Hyperband to the end of its round."""

import io
import math
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rich.console import Console

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.run import FILES, Run, locked, open_run
from pipelines.data import sources
from pipelines.training import launch, table
from pipelines.training.callbacks import CHECKPOINTS
from pipelines.training.heartbeat import Heartbeat
from pipelines.training.intervals import Interval
from pipelines.tuning.callbacks import HopelessError, RoundError, StopAfter, StopOnDeadGates
from pipelines.tuning.state import Objective


def objective(config: Config, data_dir: Path | None) -> Objective:
    """What a search over a configuration makes as good as possible: validation accuracy, of a regression the loss.

    Raises:
        UserError: the data cannot be had, or there is nothing to validate on.
    """
    info = sources.describe(config.data, data_dir, config.validation)
    if not info.counts["validation"]:
        raise UserError(
            f"{info.name} has no validation examples, and a search never looks at the test split. Hold some of the "
            f"{info.counts['train']:,} training examples out: --validation {max(1, info.counts['train'] // 12)}."
        )
    return Objective("val_accuracy", "max") if info.labels else Objective("val_loss", "min")


def train(
    config: Config,
    path: Path,
    data_dir: Path | None,
    epochs: int | None,
    wanted: Objective,
    *,
    heartbeat: Callable[[], None],
) -> float:
    """Trains a trial, or goes on with it, and gives its score.

    A trial whose worker died goes on from its checkpoint, one that a round of Hyperband paused does too.

    Args:
        config: of the trial.
        path: its run directory.
        data_dir: where prepared data lies; None for the default of TFDS.
        epochs: after which to pause; None for the end.
        wanted: the objective.
        heartbeat: called after every execution of training and validation.

    Returns:
        The objective of the best epoch.

    Raises:
        HopelessError: the gates are dead, or the loss is not finite.
        UserError: the configuration cannot be trained.
    """
    pausing = epochs is not None and epochs < config.epochs
    callbacks = [Heartbeat(heartbeat), StopOnDeadGates(path), *([StopAfter(epochs)] if pausing and epochs else [])]
    # The state at the end of the round is what the next one goes on from.
    interval: Interval = _steps_per_epoch(config, data_dir) if pausing else "auto"
    quiet = Console(file=io.StringIO())
    try:
        if not path.exists():
            launch.start(config, path, data_dir, quiet, interval=interval, callbacks=callbacks)
        elif (run := _free(path)).record.state == "running" and not (epochs and _done(run) >= epochs):
            launch.resume(path, data_dir, quiet, interval=interval, callbacks=callbacks)
    except RoundError:
        pass
    except UserError:
        if path.exists() and open_run(path).record.state == "diverged":
            raise HopelessError("the loss is not finite any more") from None
        raise
    if open_run(path).record.state == "diverged":
        raise HopelessError("the loss is not finite any more")
    scores = [row[wanted.name] for row in table.read(path / "metrics.csv")]
    finite = [score for score in scores[:epochs] if math.isfinite(score)]
    if not finite:
        raise HopelessError(f"{wanted.name} is not finite in any epoch")
    return min(finite, key=wanted.key)


def shed(path: Path) -> None:
    """Removes the weights of a trial: what is kept of it are its settings and its curves."""
    with suppress(FileNotFoundError):
        shutil.rmtree(path / CHECKPOINTS)
    for name in FILES.values():
        (path / name).unlink(missing_ok=True)


def _free(path: Path) -> Run:
    """Waits until no other worker trains in a run directory: one that was taken for lost may only have been slow."""
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
