"""The processes of a search, started by `crew` with one argument that says everything."""

import os
import sys
from pathlib import Path
from threading import Thread
from typing import Literal

from rich.console import Console

from pipelines import frameworks
from pipelines.arguments import TrainArguments, named_recipe
from pipelines.cli import guarded
from pipelines.config import Frozen
from pipelines.errors import UserError
from pipelines.run import open_run
from pipelines.train import train
from pipelines.tuning.plan import open_plan
from pipelines.tuning.watchdog import watched

AGAIN = 75
"""Exit status of a worker that wants to be started again, with fresh memory or without its trial."""


class Task(Frozen):
    """What a process does."""

    role: Literal["chief", "worker", "retrain"]
    """Lead a search, train its trials, or train its winner once more."""
    folder: Path
    """Of the search; to retrain, that of the run."""
    data_dir: Path | None
    """Where prepared data lies; None for the default of TFDS."""
    cores: tuple[int, ...] = ()
    """The cores that it may use; none for all."""
    ends: float | None = None
    """The chief's deadline, in seconds since 1970; None for none."""
    recipe: Path | None = None
    """The recipe file, to retrain."""
    seed: int = 0
    """To retrain."""


def main(words: list[str]) -> int:
    """Does a task.

    Args:
        words: the task as JSON.

    Returns:
        The exit status: 0 when the search is over or its time is; 2 for a user's mistake; `AGAIN`.
    """
    task = Task.model_validate_json(words[0])
    Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if task.cores and hasattr(os, "sched_setaffinity"):
        # Before any framework counts the cores to make its threads.
        os.sched_setaffinity(0, task.cores)
    try:
        return guarded("highway tune", lambda: _act(task))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def _act(task: Task) -> None:
    if task.role == "retrain":
        try:
            with watched() as alive:
                train(_training(task), Console(), alive)
        except UserError:
            # With another seed a winner may diverge; that is a result.
            if not task.folder.exists() or open_run(task.folder).record.state != "diverged":
                raise
        return
    frameworks.load()
    plan = open_plan(task.folder)
    if task.role == "chief":
        from pipelines.tuning.chief import lead

        lead(plan, task.folder, task.data_dir, task.ends)
    else:
        from pipelines.tuning.worker import work

        work(plan, task.folder, task.data_dir)


def _training(task: Task) -> TrainArguments:
    if task.folder.exists():
        return TrainArguments(None, None, task.folder, task.data_dir)
    config = named_recipe(str(task.recipe)).config.model_copy(update={"seed": task.seed})
    return TrainArguments(config, task.folder, None, task.data_dir)


def _end_with_parent() -> None:
    # The other end of the pipe is closed when the parent ends, however it does.
    sys.stdin.buffer.read()
    os._exit(1)


if __name__ == "__main__":
    status = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    # Threads of gRPC and TensorFlow must not keep a process that is done.
    os._exit(status)
