"""oracle.json: how far a search is. The chief replaces it as a whole; whoever shows or sums up the search reads it.

No framework needed.
"""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.core.errors import UserError
from pipelines.tuning.space import Value

FILE = "oracle.json"
# What KerasTuner's statuses mean here: a trial whose worker was lost is INVALID until another worker takes it.
STATES: dict[str, "Status"] = {
    "RUNNING": "running",
    "INVALID": "waiting",
    "COMPLETED": "completed",
    "FAILED": "failed",
}
Status = Literal["running", "waiting", "completed", "failed"]


@dataclass(frozen=True)
class Objective:
    """What is made as good as possible, on the validation split."""

    name: str
    """Column of metrics.csv."""
    direction: Literal["max", "min"]
    """Whether more is better."""

    def key(self, score: float) -> float:
        """What sorts scores, the best first."""
        return -score if self.direction == "max" else score


@dataclass(frozen=True)
class Trial:
    """A trial as the chief knows it."""

    number: str
    """Its name in KerasTuner, and of its folder."""
    status: Status
    values: dict[str, Value]
    """Drawn, by the names of `pipelines.core.config.Space`, and "net" in a study."""
    score: float | None
    """The objective of the best epoch; None unless completed."""
    reason: str
    """Why it failed."""
    worker: str
    """Who has it, or had it last."""
    since: float
    """When it was given to that worker, seconds since 1970."""
    seconds: float
    """Spent on it, all attempts together, once it is over."""
    epochs: int | None
    """After which it stops, where Hyperband says so."""
    earlier: str | None
    """The trial that it goes on with, in Hyperband."""
    before: int
    """The epochs that this one had been trained."""

    @property
    def over(self) -> bool:
        """Whether it needs no worker any more."""
        return self.status in ("completed", "failed")


@dataclass(frozen=True)
class SearchState:
    """A search at one moment."""

    objective: Objective
    over: bool
    """Whether all trials are done."""
    trials: tuple[Trial, ...]
    """In the order they were drawn."""

    @property
    def ranked(self) -> list[Trial]:
        """The completed trials, the best first; the earlier of equals."""
        scored = [(trial.score, trial) for trial in self.trials if trial.score is not None]
        return [trial for score, trial in sorted(scored, key=lambda pair: self.objective.key(pair[0]))]

    @property
    def reasons(self) -> list[str]:
        """Why trials failed: the three commonest reasons, with their number."""
        counted = Counter(trial.reason for trial in self.trials if trial.reason)
        return [f"{number} x {reason.rstrip('.')}" for reason, number in counted.most_common(3)]

    def root(self, trial: Trial) -> Trial:
        """The first of the trials that Hyperband made of each other: they share its run directory."""
        numbered = {other.number: other for other in self.trials}
        while trial.earlier:
            trial = numbered[trial.earlier]
        return trial


def read(folder: Path) -> SearchState | None:
    """The state of the search in a folder; None before its chief has written one.

    Raises:
        UserError: the file is damaged.
    """
    try:
        kept = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return SearchState(
            Objective(**kept["objective"]),
            kept["over"],
            tuple(_trial(trial, kept["clock"][trial["trial_id"]]) for trial in kept["trials"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"{folder / FILE} is damaged ({error!r}). Restore it from a copy, or search anew.") from error


def _trial(state: dict[str, Any], clock: dict[str, Any]) -> Trial:
    values = state["hyperparameters"]["values"]
    return Trial(
        number=state["trial_id"],
        status=STATES[state["status"]],
        values={name: value for name, value in values.items() if "/" not in name},
        score=state["score"] if state["status"] == "COMPLETED" else None,
        reason=state["message"] or "",
        worker=clock["worker"],
        since=clock["since"],
        seconds=clock["seconds"],
        epochs=values.get("tuner/epochs"),
        earlier=values.get("tuner/trial_id"),
        before=values.get("tuner/initial_epoch", 0),
    )
