"""A search with an ask-and-tell interface: KerasTuner's oracle proposes trials, and is given their results.

KerasTuner waits forever for the process that runs a trial, and writes its state in pieces. Here the whole state is one
file, replaced atomically after every step, and a search that resumes runs the trials again that were running.
"""

import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from keras_tuner.engine.trial import Trial as OracleTrial

from pipelines.core.files import write_text
from pipelines.tuning import oracles
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import FILE, Objective
from pipelines.tuning.space import Value


@dataclass(frozen=True)
class Proposal:
    """A trial to run."""

    number: str
    """Id of the trial."""
    values: dict[str, Value]
    """Sampled values; KerasTuner's own have a "/" in their names."""
    epochs: int | None
    """Epochs at the end of its Hyperband rung; None outside Hyperband."""
    root: str
    """The first trial of its Hyperband chain, whose run directory it continues."""


@dataclass
class Clock:
    """The time of a trial."""

    worker: str
    """Its slot among the running trials, which earlier versions need to resume it."""
    since: float
    """Time when it was proposed, or its end, in seconds since 1970."""
    seconds: float = 0.0
    """Duration of all attempts so far."""


class AskTell:
    """A search that proposes trials and records their ends; begins or resumes that of its folder.

    Args:
        plan: the plan of the search.
        objective: the validation metric.
        folder: the folder of the search.
        now: returns the seconds since 1970.

    Example:
        while not search.over:
            proposal = search.ask()
            search.tell(proposal.number, train(proposal.values))
    """

    def __init__(
        self, plan: SearchPlan, objective: Objective, folder: Path, now: Callable[[], float] = time.time
    ) -> None:
        self.plan = plan
        self.objective = objective
        self.folder = folder
        self.now = now
        self.oracle = oracles.make(plan, objective)
        self.over = False
        # Trials that were running when an earlier process ended.
        self.waiting: list[str] = []
        self.clocks: dict[str, Clock] = {}
        if (folder / FILE).exists():
            self._read()

    @property
    def running(self) -> int:
        """Number of trials that were proposed and have not ended."""
        return len(self.oracle.ongoing_trials)

    def ask(self) -> Proposal | None:
        """Proposes a trial.

        Returns:
            The trial; None if there is none before the end of another one, or if the search is over.
        """
        taken = self.oracle.ongoing_trials
        worker = next(name for name in (f"worker-{place}" for place in range(len(taken) + 1)) if name not in taken)
        if self.waiting:
            trial = self.oracle.trials[self.waiting.pop(0)]
            trial.status = "RUNNING"
            taken[worker] = trial
        else:
            trial = self.oracle.create_trial(worker)
        if trial.status != "RUNNING":
            self.over = trial.status == "STOPPED" and not taken
            self._save()
            return None
        before = self.clocks.get(trial.trial_id)
        self.clocks[trial.trial_id] = Clock(worker, self.now(), before.seconds if before else 0.0)
        self._save()
        values = trial.hyperparameters.values
        return Proposal(trial.trial_id, dict(values), values.get("tuner/epochs"), self._root(trial))

    def tell(self, number: str, score: float) -> None:
        """Records that a trial is completed.

        Args:
            number: id of the trial.
            score: its objective.
        """
        self.oracle.update_trial(number, {self.objective.name: score})
        self._end(number, "COMPLETED", None)

    def fail(self, number: str, reason: str) -> None:
        """Records that a trial has no result.

        Args:
            number: id of the trial.
            reason: why.
        """
        self._end(number, "FAILED", reason)

    def pause(self) -> None:
        """Records the time that the running trials have taken, once they have been interrupted."""
        for trial in self.oracle.ongoing_trials.values():
            self._stop_clock(trial.trial_id)
        self._save()

    def _end(self, number: str, status: str, reason: str | None) -> None:
        trial = self.oracle.trials[number]
        trial.status, trial.message = status, reason
        self._stop_clock(number)
        self.oracle.end_trial(trial)
        self._save()

    def _stop_clock(self, number: str) -> None:
        clock, now = self.clocks[number], self.now()
        clock.seconds += now - clock.since
        clock.since = now

    def _root(self, trial: OracleTrial) -> str:
        while earlier := trial.hyperparameters.values.get("tuner/trial_id"):
            trial = self.oracle.trials[earlier]
        return str(trial.trial_id)

    def _save(self) -> None:
        state = {
            "objective": asdict(self.objective),
            "over": self.over,
            "waiting": self.waiting,
            "clock": {number: asdict(clock) for number, clock in self.clocks.items()},
            "trials": [trial.get_state() for trial in self.oracle.trials.values()],
            "oracle": self.oracle.get_state(),
        }
        write_text(self.folder / FILE, json.dumps(state))

    def _read(self) -> None:
        state: dict[str, Any] = json.loads((self.folder / FILE).read_text(encoding="utf-8"))
        self.over = state["over"]
        self.clocks = {
            number: Clock(clock["worker"], clock["since"], clock["seconds"]) for number, clock in state["clock"].items()
        }
        self.oracle.trials = {trial["trial_id"]: OracleTrial.from_state(trial) for trial in state["trials"]}
        # The stored space is not used: its digest of the plan may come from an earlier version with other fields.
        space = self.oracle.get_space()
        self.oracle.set_state(state["oracle"])
        self.oracle.hyperparameters = space
        # Earlier versions saved the end of a trial before they took it from the running ones.
        running = [trial for trial in self.oracle.ongoing_trials.values() if trial.status == "RUNNING"]
        for trial in running:
            # KerasTuner learns nothing from an INVALID trial and does not count it as done.
            trial.status = "INVALID"
        self.oracle.ongoing_trials = {}
        self.waiting = [*(trial.trial_id for trial in running), *state["waiting"]]
