"""Entry point of the processes of a search."""

from pipelines.core import frameworks
from pipelines.training.processes.task import perform
from pipelines.tuning.search import SearchTask
from pipelines.tuning.search_plan import open_plan


def act(task: SearchTask) -> None:
    """Plays the task's role in its search."""
    frameworks.load()
    plan = open_plan(task.folder)
    if task.role == "chief":
        from pipelines.tuning.distributed.chief import lead

        lead(plan, task.folder, task.data_dir, task.ends)
    else:
        from pipelines.tuning.distributed.worker import work

        work(plan, task.folder, task.data_dir)


if __name__ == "__main__":
    perform(SearchTask, act)
