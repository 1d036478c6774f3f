"""Entry point of the processes of a search."""

import sys

from pipelines.core import frameworks
from pipelines.training.processes.task import leave, perform
from pipelines.tuning.search import SearchTask
from pipelines.tuning.search_plan import open_plan


def main(words: list[str]) -> int:
    """Performs a task.

    Args:
        words: the task as JSON.

    Returns:
        The exit status: 0 when the search is over or its deadline has passed; 2 for a user error; `AGAIN`.
    """
    task = SearchTask.model_validate_json(words[0])
    return perform("highway tune", task, lambda: _act(task))


def _act(task: SearchTask) -> None:
    frameworks.load()
    plan = open_plan(task.folder)
    if task.role == "chief":
        from pipelines.tuning.distributed.chief import lead

        lead(plan, task.folder, task.data_dir, task.ends)
    else:
        from pipelines.tuning.distributed.worker import work

        work(plan, task.folder, task.data_dir)


if __name__ == "__main__":
    leave(main(sys.argv[1:]))
