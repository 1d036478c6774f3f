"""A search without processes: scores are computed on the spot, and a test decides which trial ends next."""

from pipelines.core.errors import UserError
from pipelines.core.executor import Outcome
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.driver import drive
from pipelines.tuning.search_state import read

from .plans import ACCURACY


class KilledError(BaseException):
    """The driver is killed."""


class InMemory:
    """An executor whose trials end one at a time.

    `score(task)` returns the score of a trial or raises UserError. `choose(executor)` returns the key of the trial that
    ends next; None if none does for now.
    """

    def __init__(self, score, workers=1, choose=lambda executor: next(iter(executor.tasks))):
        self.score, self.workers, self.choose = score, workers, choose
        self.tasks = {}
        self.started = []

    def capacity(self):
        return self.workers

    def submit(self, key, task, function):
        assert key not in self.tasks
        assert len(self.tasks) < self.workers
        self.tasks[key] = task
        self.started.append(key)

    def finished(self, timeout):
        if not self.tasks or (key := self.choose(self)) is None:
            return []
        try:
            return [Outcome(key, self.score(self.tasks.pop(key)))]
        except UserError as error:
            return [Outcome(key, error=str(error))]


def drawn(values):
    return {name: value for name, value in values.items() if "/" not in name}


def score_of(task):
    return 1 - abs(task.values["transform_bias"] + 3) / 10


def every_fourth_fails(task):
    if int(task.place.name) % 4 == 3:
        raise UserError("dead gates")
    return score_of(task)


def search_in(folder, plan, executor, objective=ACCURACY):
    """Runs a search to its end and returns its state."""
    drive(AskTell(plan, objective, folder), executor)
    return read(folder)
