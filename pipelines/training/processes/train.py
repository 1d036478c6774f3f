"""A process that trains one run to its end, whether new or interrupted, and evaluates it if asked to."""

import time
from pathlib import Path
from typing import ClassVar, Literal

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import remove_leftovers
from pipelines.core.run import Weights, locked, open_run
from pipelines.training.probe import Probes
from pipelines.training.processes.task import Task, perform, watchdog
from pipelines.training.train import resume, train

EVALUATION = "evaluation.json"
PATIENCE = 30.0
"""Seconds to wait for a run that another process holds."""
INTERVAL = 0.2
"""Seconds between two attempts to lock the run."""


class TrainTask(Task):
    """Trains a run; the folder is its run directory."""

    module: ClassVar[str] = f"{__package__}.train"
    program: ClassVar[str] = "highway train"
    role: Literal["train"] = "train"
    config: Config
    """Configuration of a new run; an existing run keeps its own."""
    evaluate: bool = False
    """Evaluate the run on the test split at the end."""
    weights: Weights = "final"
    """The weights to evaluate."""

    @property
    def done(self) -> bool:
        """True if nothing is left to do. A diverged run is done, because diverging is its result."""
        return _trained(self.folder) and (not self.evaluate or _evaluated(self.folder) or diverged(self.folder))


def act(task: TrainTask, probe: Probes | None = None) -> None:
    """Trains a run to its end and evaluates it if asked to, skipping what is already done.

    Args:
        task: the run.
        probe: measurements during training; None for none.

    Raises:
        UserError: the run cannot be trained or evaluated.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    if not _trained(task.folder):
        _wait(task.folder)
        _train(task, probe)
    if task.evaluate and not (_evaluated(task.folder) or diverged(task.folder)):
        # Imported late, because NumPy counts the cores on import and they must be chosen first.
        from pipelines.training.evaluate import evaluate

        for folder in (task.folder, task.folder / "figures"):
            remove_leftovers(folder)
        evaluate(task.folder, task.weights, task.data_dir)


def _train(task: TrainTask, probe: Probes | None) -> None:
    try:
        with watchdog() as reset:
            if task.folder.exists():
                resume(task.folder, data_dir=task.data_dir, probe=probe, reset_watchdog=reset)
            else:
                train(task.config, task.folder, data_dir=task.data_dir, probe=probe, reset_watchdog=reset)
    except UserError:
        # That a net diverges with some seed is a result, not an error.
        if not task.folder.exists() or not diverged(task.folder):
            raise


def _wait(folder: Path) -> None:
    """Waits for a process that still trains the run to end, as after its parent was killed."""
    if not folder.exists():
        return
    run, until = open_run(folder), time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with locked(run):
                return
        except UserError:
            time.sleep(INTERVAL)


def _trained(folder: Path) -> bool:
    """Returns whether a run is trained to its end: the report is the last file that training writes.

    The record counts too: in a bucket, the report may be newer.
    """
    if not folder.exists():
        return False
    state = open_run(folder).record.state
    return state == "diverged" or (state == "finished" and (folder / "report.md").exists())


def _evaluated(folder: Path) -> bool:
    """Returns whether a run is evaluated: the result is the last file that evaluation writes, after the report.

    Ages of the two would not tell: files from a bucket are as old as their download.
    """
    return (folder / EVALUATION).exists()


def diverged(folder: Path) -> bool:
    """Returns whether a run ended because its loss was no longer finite."""
    return open_run(folder).record.state == "diverged"


if __name__ == "__main__":
    perform(TrainTask, act)
