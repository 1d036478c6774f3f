"""The processes of a search."""

import sys
from typing import ClassVar, Literal

from pipelines.core import frameworks
from pipelines.training.processes.task import Task, leave, perform
from pipelines.tuning.plan import open_plan


class SearchTask(Task):
    """What a process of a search does; the folder is that of the search."""

    module: ClassVar[str] = "pipelines.tuning.process"
    role: Literal["chief", "worker"]
    """Lead a search, or train its trials."""
    ends: float | None = None
    """The chief's deadline, in seconds since 1970; None for none."""


def main(words: list[str]) -> int:
    """Does a task.

    Args:
        words: the task as JSON.

    Returns:
        The exit status: 0 when the search is over or its time is; 2 for a user's mistake; `AGAIN`.
    """
    task = SearchTask.model_validate_json(words[0])
    return perform("highway tune", task, lambda: _act(task))


def _act(task: SearchTask) -> None:
    frameworks.load()
    plan = open_plan(task.folder)
    if task.role == "chief":
        from pipelines.tuning.chief import lead

        lead(plan, task.folder, task.data_dir, task.ends)
    else:
        from pipelines.tuning.worker import work

        work(plan, task.folder, task.data_dir)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
