"""A search without processes: workers are names, and the test sets the time."""

from pipelines.tuning.distributed.fault_tolerance import REASON
from pipelines.tuning.distributed.oracles import make
from pipelines.tuning.search_state import read

from ..plans import ACCURACY


class Time:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Search:
    """A chief that can be restarted, and workers that can be lost."""

    def __init__(self, folder, plan, objective=ACCURACY):
        self.folder, self.plan, self.objective, self.time = folder, plan, objective, Time()
        self.restart()

    def restart(self):
        self.oracle = make(self.plan, self.objective)
        self.oracle._set_project_dir(str(self.folder), "kerastuner")
        self.oracle.make_fault_tolerant(self.plan, self.folder, self.time)

    def ask(self, worker):
        return self.oracle.create_trial(worker)

    def finish(self, trial, score=0.5, status="COMPLETED", reason=None):
        ended = type(trial)(trial.hyperparameters.copy(), trial.trial_id, status)
        if status == "COMPLETED":
            self.oracle.update_trial(trial.trial_id, {self.objective.name: score})
        elif reason:
            ended.hyperparameters.values[REASON] = reason
        self.oracle.end_trial(ended)

    def state(self):
        return read(self.folder)


def drawn(trial):
    return {name: value for name, value in trial.hyperparameters.values.items() if "/" not in name}
