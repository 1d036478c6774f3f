"""A process that trains one run to its end, from wherever it stands, and measures it if that is asked for."""

import sys
import time
from pathlib import Path
from typing import ClassVar, Literal

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import remove_leftovers
from pipelines.core.run import Weights, locked, open_run
from pipelines.training.probe import Probes
from pipelines.training.processes.task import Task, leave, perform
from pipelines.training.processes.watchdog import watchdog
from pipelines.training.train import resume, train

EVALUATION = "evaluation.json"
PATIENCE = 30.0
"""Seconds to wait for a run that another process holds."""
LOOK = 0.2
"""Seconds between two looks at it."""


class TrainTask(Task):
    """A run; the folder is its run directory."""

    module: ClassVar[str] = "pipelines.training.processes.train"
    role: Literal["train"] = "train"
    config: Config
    """Of the run; one that has begun keeps its own."""
    evaluate: bool = False
    """Whether to measure it on the test split at its end."""
    weights: Weights = "final"
    """Which are measured."""

    @property
    def done(self) -> bool:
        """Whether nothing is left to do. A run that diverged is done: that is its result."""
        return _trained(self.folder) and (not self.evaluate or _evaluated(self.folder) or diverged(self.folder))


def main(words: list[str]) -> int:
    """Does a task.

    Args:
        words: the task as JSON.

    Returns:
        The exit status: 0 when the run is done; 2 for a user's mistake.
    """
    task = TrainTask.model_validate_json(words[0])
    return perform("highway train", task, lambda: act(task))


def act(task: TrainTask, probe: Probes | None = None) -> None:
    """Trains the run to its end, and measures it if that is asked for; what is done already is not done again.

    Args:
        task: the run.
        probe: what is measured on the way; None for nothing.

    Raises:
        UserError: the run cannot be trained or measured.
        StoppedError: after SIGTERM or SIGINT, once the state is saved.
    """
    if not _trained(task.folder):
        _wait(task.folder)
        _train(task, probe)
    if task.evaluate and not (_evaluated(task.folder) or diverged(task.folder)):
        # Not before the cores are chosen: NumPy counts them when it is imported.
        from pipelines.training.evaluate import evaluate

        for folder in (task.folder, task.folder / "figures"):
            remove_leftovers(folder)
        evaluate(task.folder, task.weights, task.data_dir)


def _train(task: TrainTask, probe: Probes | None) -> None:
    try:
        with watchdog() as heartbeat:
            if task.folder.exists():
                resume(task.folder, data_dir=task.data_dir, probe=probe, heartbeat=heartbeat)
            else:
                train(task.config, task.folder, data_dir=task.data_dir, probe=probe, heartbeat=heartbeat)
    except UserError:
        # With some seed a net may diverge; that is a result.
        if not task.folder.exists() or not diverged(task.folder):
            raise


def _wait(folder: Path) -> None:
    """Gives a process that still trains the run, because whoever started it was just killed, the time to end."""
    if not folder.exists():
        return
    run, until = open_run(folder), time.monotonic() + PATIENCE
    while time.monotonic() < until:
        try:
            with locked(run):
                return
        except UserError:
            time.sleep(LOOK)


def _trained(folder: Path) -> bool:
    """Whether a run is at its end; the report is the last that training writes."""
    return folder.exists() and (diverged(folder) or (folder / "report.md").exists())


def _evaluated(folder: Path) -> bool:
    """Whether a run is measured; its report, which tells the result, is the last that this writes too."""
    result, report = folder / EVALUATION, folder / "report.md"
    return result.exists() and result.stat().st_mtime_ns <= report.stat().st_mtime_ns


def diverged(folder: Path) -> bool:
    """Whether the loss of a run was no number any more, which ended it."""
    return open_run(folder).record.state == "diverged"


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
