"""A trial as a task for an executor. Imports no framework until it runs."""

import io
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from pipelines.core.errors import UserError, disk_is_full
from pipelines.core.executor import AttemptError, JobError
from pipelines.core.url import Location
from pipelines.training.processes.task import run_of_task, watchdog
from pipelines.tuning.search_plan import SEARCH_FILE, SearchPlan
from pipelines.tuning.search_state import Objective, shed
from pipelines.tuning.space import Value


@dataclass(frozen=True)
class TrialTask:
    """A trial to train."""

    plan: SearchPlan
    """The plan of the search."""
    values: Mapping[str, Value]
    """The sampled values."""
    epochs: int | None
    """Epochs at the end of its Hyperband rung; None for all."""
    place: Location
    """Its run directory, or the URL of one."""
    data_dir: Path | None
    """Folder of prepared data; None for the TFDS default."""
    objective: Objective
    """The objective of the search."""


def run(task: TrialTask) -> float:
    """Trains a trial.

    Args:
        task: the trial.

    Returns:
        Its score.

    Raises:
        UserError: the trial has no result, and another attempt would have none either.
        AttemptError: the machine or the framework failed; another attempt may have a result.
        JobError: this machine lacks the folder of the search or the data, or cannot use their store.
        StoppedError: a signal came and the state is saved; another worker can resume the trial.
        OSError: the disk is full.
    """
    try:
        with run_of_task(task.place, SEARCH_FILE.name) as path:
            return _trained(task, path)
    except UserError:
        raise
    except Exception as error:
        if disk_is_full(error):
            raise
        # The stack trace goes to the log of the worker.
        traceback.print_exc()
        # Such errors may be those of a machine, which would fail every trial that it gets.
        kind = AttemptError if isinstance(error, (OSError, MemoryError, ImportError, *_of_frameworks())) else UserError
        raise kind(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error


def _of_frameworks() -> tuple[type[Exception], ...]:
    try:
        import tensorflow as tf
    except ImportError:
        return (RuntimeError,)
    return (RuntimeError, tf.errors.OpError)


def _trained(task: TrialTask, path: Path) -> float:
    from pipelines.data.own import prepare as own
    from pipelines.tuning import trials

    try:
        # A node of a cluster may not have prepared data at a URL yet.
        own.restore(task.plan.config, Console(file=io.StringIO()))
        trials.objective(task.plan.config, task.data_dir)
    except UserError as error:
        # Every trial would fail on this machine.
        raise JobError(str(error)) from error
    last = not task.epochs or task.epochs >= task.plan.config.epochs
    config = task.plan.configured(task.values)
    with watchdog() as reset:
        score = trials.train(config, path, task.data_dir, task.epochs, task.objective, reset_watchdog=reset)
    if last:
        shed(path)
    return score
