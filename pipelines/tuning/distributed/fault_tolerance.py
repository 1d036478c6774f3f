"""Fault tolerance for KerasTuner's oracles.

KerasTuner waits forever for a worker that died, writes its state in pieces, keeps its lock after an error, and stops a
search after three failed trials. Here a silent worker loses its trial to the next worker that asks for one, the state
is a single file that is replaced atomically, and an error ends the chief.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import RLock
from typing import Any

import keras_tuner
from keras_tuner.engine.trial import Trial

from pipelines.core.files import write_text
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import FILE

LEASE = 60.0
"""Seconds without a heartbeat after which a worker is considered lost."""
ATTEMPTS = 3
"""Number of lost workers after which a trial counts as failed."""
REASON = "tuner/reason"
"""Hyperparameter that carries the reason for a failure from worker to chief: KerasTuner does not send messages."""


@dataclass
class Lease:
    """A trial's lease: its worker, the time when the worker received it, and the cost of the trial so far."""

    worker: str
    since: float
    seconds: float = 0.0
    lost: int = 0


class FaultTolerant(keras_tuner.Oracle):
    """Mixin that makes a KerasTuner oracle fault-tolerant; it must precede the oracle among the bases of a class.

    It serializes every method that a worker calls, so that an error cannot leave KerasTuner's lock held.
    """

    def make_fault_tolerant(self, plan: SearchPlan, folder: Path, now: Callable[[], float] = time.time) -> None:
        """Begins or resumes the search in its folder.

        Args:
            plan: the plan of the search.
            folder: the folder of the search.
            now: returns the seconds since 1970.
        """
        self.plan = plan
        self.file = folder / FILE
        self.now = now
        self.turn = RLock()
        self.over = False
        self.closed = False
        self.broken: BaseException | None = None
        self.waiting: list[str] = []
        self.leases: dict[str, Lease] = {}
        self.began = now()
        # Time of each worker's last heartbeat to this chief; workers of an earlier chief are unknown.
        self.heard: dict[str, float] = {}
        self.verbose = 0
        if self.file.exists():
            self.reload()

    @contextmanager
    def _taking_turns(self) -> Iterator[None]:
        with self.turn:
            try:
                yield
            except BaseException as error:
                self.broken = error
                raise

    def create_trial(self, tuner_id: str) -> Trial:
        """KerasTuner's method: gives a worker a trial and records a heartbeat."""
        with self._taking_turns():
            known = tuner_id in self.heard
            self.heard[tuner_id] = self.now()
            if self.closed:
                return self._dismissed(tuner_id)
            if tuner_id in self.ongoing_trials:
                if not known:
                    # The chief has restarted too, so the trial is not to blame.
                    return self._given(self.ongoing_trials[tuner_id].trial_id, tuner_id)
                self._lose(tuner_id)
            if self.waiting:
                return self._given(self.waiting.pop(0), tuner_id)
            trial = super().create_trial(tuner_id)
            if trial.status == "STOPPED":
                if self.ongoing_trials:
                    # Idle workers stay, so that they can take over a trial whose worker is lost.
                    self.tuner_ids.add(tuner_id)
                    trial.status = "IDLE"
                else:
                    self.over = True
                    self.save()
            return trial

    def get_trial(self, trial_id: str) -> Trial:
        """KerasTuner's method; workers also use it as a heartbeat and to learn whether to continue."""
        with self._taking_turns():
            if trial_id not in self.trials:
                return self._foreign(trial_id)
            trial = self.trials[trial_id]
            worker = self.leases[trial_id].worker
            if self.closed:
                # This status makes the worker leave its trial.
                self.tuner_ids.discard(worker)
                return Trial(trial.hyperparameters, trial_id, "STOPPED")
            self.heard[worker] = self.now()
            if trial_id in self.waiting and worker not in self.ongoing_trials:
                # The worker was not lost, only slow.
                self.waiting.remove(trial_id)
                self.leases[trial_id].lost -= 1
                self._given(trial_id, worker)
            return trial

    def update_trial(self, trial_id: str, metrics: dict[str, float], step: int = 0) -> Trial:
        """KerasTuner's method: records the score of a trial."""
        with self._taking_turns():
            if trial_id not in self.trials:
                return self._foreign(trial_id)
            return super().update_trial(trial_id, metrics, step)

    def end_trial(self, trial: Trial) -> None:
        """KerasTuner's method; ending a trial twice has no effect."""
        with self._taking_turns():
            known = self.trials.get(trial.trial_id)
            if known is None or known.status not in ("RUNNING", "INVALID"):
                return
            values = trial.hyperparameters.values
            trial.message = values.pop(REASON, None) or trial.message
            lease = self.leases[trial.trial_id]
            lease.seconds += self.now() - lease.since
            if trial.trial_id in self.waiting:
                self.waiting.remove(trial.trial_id)
            if trial.status == "INVALID":
                trial.status = "FAILED"
            super().end_trial(trial)
            self.save()

    def expire(self) -> None:
        """Takes trials away from workers silent for more than `LEASE` seconds, and forgets idle workers among them."""
        with self._taking_turns():
            for tuner_id in dict.fromkeys([*self.ongoing_trials, *self.tuner_ids]):
                if self.now() - self.heard.get(tuner_id, self.began) > LEASE:
                    # A closed search takes no trials away, because it has asked the workers to leave them.
                    if tuner_id in self.ongoing_trials and not self.closed:
                        self._lose(tuner_id)
                    self.tuner_ids.discard(tuner_id)

    def awake(self) -> None:
        """Renews all leases after this process itself was suspended and missed heartbeats."""
        with self._taking_turns():
            self.began = self.now()
            self.heard = {}

    def close(self) -> None:
        """Asks every worker to stop from now on; a later chief can resume unfinished trials."""
        with self._taking_turns():
            self.closed = True
            for trial in self.ongoing_trials.values():
                lease = self.leases[trial.trial_id]
                lease.seconds += self.now() - lease.since
                lease.since = self.now()
            self.save()

    def _foreign(self, trial_id: str) -> Trial:
        # A leftover worker of another search must not end this one.
        return Trial(self.get_space(), trial_id, "INVALID")

    def _dismissed(self, tuner_id: str) -> Trial:
        self.tuner_ids.discard(tuner_id)
        return Trial(self.get_space(), "", "STOPPED")

    def _given(self, trial_id: str, tuner_id: str) -> Trial:
        trial = self.trials[trial_id]
        trial.status = "RUNNING"
        self.ongoing_trials[tuner_id] = trial
        self.tuner_ids.add(tuner_id)
        self.leases[trial_id].worker = tuner_id
        self.leases[trial_id].since = self.now()
        self.save()
        return trial

    def _lose(self, tuner_id: str) -> None:
        trial = self.ongoing_trials.pop(tuner_id)
        lease = self.leases[trial.trial_id]
        lease.lost += 1
        lease.seconds += self.now() - lease.since
        lease.since = self.now()
        if lease.lost < ATTEMPTS:
            # KerasTuner learns nothing from an INVALID trial and does not count it as done.
            trial.status = "INVALID"
            self.waiting.append(trial.trial_id)
            self.save()
        else:
            trial.status, trial.message = "RUNNING", None
            ended = Trial(trial.hyperparameters, trial.trial_id, "FAILED")
            ended.message = f"each of {ATTEMPTS} workers that ran it died or hung"
            self.end_trial(ended)

    def save(self) -> None:
        """KerasTuner's method: writes the whole state atomically to one file."""
        for tuner_id, trial in self.ongoing_trials.items():
            self.leases.setdefault(trial.trial_id, Lease(tuner_id, self.now()))
        state = {
            "objective": {"name": self.objective.name, "direction": self.objective.direction},
            "over": self.over,
            "waiting": self.waiting,
            "clock": {trial_id: asdict(lease) for trial_id, lease in self.leases.items()},
            "trials": [trial.get_state() for trial in self.trials.values()],
            "oracle": self.get_state(),
        }
        write_text(self.file, json.dumps(state))

    def reload(self) -> None:
        """KerasTuner's method; unlike KerasTuner, leaves running trials to their workers, which may still be alive."""
        state: dict[str, Any] = json.loads(self.file.read_text(encoding="utf-8"))
        self.over = state["over"]
        self.waiting = state["waiting"]
        self.leases = {trial_id: Lease(**lease) for trial_id, lease in state["clock"].items()}
        self.trials = {trial["trial_id"]: Trial.from_state(trial) for trial in state["trials"]}
        # The stored space is not used: its digest of the plan may come from an earlier version with other fields.
        space: Any = self.get_space()
        self.set_state(state["oracle"])
        self.hyperparameters = space
        # KerasTuner saves the end of a trial before it takes the trial from its worker.
        for tuner_id, trial in [*self.ongoing_trials.items()]:
            if trial.status != "RUNNING":
                del self.ongoing_trials[tuner_id]
        self.tuner_ids = set(self.ongoing_trials)
