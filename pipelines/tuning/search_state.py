"""The state of a search, oracle.json: replaced atomically by `ask_tell`, read by progress displays and summaries.

Imports no framework.
"""

import json
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pipelines.core.errors import UserError
from pipelines.core.run import FILES, INITIAL
from pipelines.tuning.space import Value

FILE = "oracle.json"
# KerasTuner's statuses. A trial is INVALID if it was running when the search was interrupted, until it runs again.
STATES: dict[str, "Status"] = {
    "RUNNING": "running",
    "INVALID": "waiting",
    "COMPLETED": "completed",
    "FAILED": "failed",
}
Status = Literal["running", "waiting", "completed", "failed"]


@dataclass(frozen=True)
class Objective:
    """The validation metric that a search optimizes."""

    name: str
    """Column of metrics.csv."""
    direction: Literal["max", "min"]
    """"max" if higher is better."""

    @property
    def label(self) -> str:
        """Its name in sentences, such as "validation accuracy"."""
        return f"validation {self.name.removeprefix('val_').replace('_', '-')}"

    def text(self, score: float | None) -> str:
        """Formats a score: accuracies as percentages, like everywhere else; nothing if there is none."""
        if score is None:
            return ""
        return f"{score:.2%}" if self.name == "val_accuracy" else f"{score:.4g}"

    def key(self, score: float) -> float:
        """A sort key that puts the best score first."""
        return -score if self.direction == "max" else score


@dataclass(frozen=True)
class Trial:
    """A trial as recorded in the file."""

    number: str
    """Id of the trial in KerasTuner, and the name of its folder."""
    status: Status
    values: dict[str, Value]
    """Sampled values by the names of `pipelines.core.config.Space`, and "net" in a study."""
    score: float | None
    """The objective of the best epoch; None unless completed."""
    reason: str
    """Reason for a failure."""
    since: float
    """Time when it was last proposed, or its end, in seconds since 1970."""
    seconds: float
    """Time spent on all attempts, once the trial is over."""
    epochs: int | None
    """Epochs at the end of its Hyperband rung; None outside Hyperband."""
    earlier: str | None
    """The Hyperband trial that it continues."""
    before: int
    """Epochs already done by the trial that it continues."""

    @property
    def over(self) -> bool:
        """True if the trial is completed or failed."""
        return self.status in ("completed", "failed")


@dataclass(frozen=True)
class SearchState:
    """A snapshot of a search."""

    objective: Objective
    over: bool
    """Whether all trials are done."""
    trials: tuple[Trial, ...]
    """Trials in the order of sampling."""

    @property
    def ranked(self) -> list[Trial]:
        """The completed trials, best first; ties in the order of sampling."""
        scored = [(trial.score, trial) for trial in self.trials if trial.score is not None]
        return [trial for score, trial in sorted(scored, key=lambda pair: self.objective.key(pair[0]))]

    @property
    def reasons(self) -> list[str]:
        """The three most frequent reasons for failures, with their counts."""
        counts = Counter(trial.reason for trial in self.trials if trial.reason)
        return [f"{number} x {reason.rstrip('.')}" for reason, number in counts.most_common(3)]

    def root(self, trial: Trial) -> Trial:
        """The first trial of a Hyperband chain, whose run directory all trials of the chain share."""
        by_number = {other.number: other for other in self.trials}
        while trial.earlier:
            trial = by_number[trial.earlier]
        return trial


def read(folder: Path) -> SearchState | None:
    """Reads the state of the search in a folder; None if it has not begun.

    Raises:
        UserError: the file is damaged.
    """
    try:
        stored = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return SearchState(
            Objective(**stored["objective"]),
            stored["over"],
            tuple(_trial(trial, stored["clock"][trial["trial_id"]]) for trial in stored["trials"]),
        )
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder / FILE} is damaged ({error!r}). Restore it from a copy, or start a new search."
        ) from error


def shed(path: Path) -> None:
    """Removes the weights of a trial, but keeps its settings and curves.

    Args:
        path: its run directory.
    """
    # NumPy, which it imports, counts the cores, and these are chosen first.
    from pipelines.training.checkpoint_file import CHECKPOINTS

    # A worker that counts as lost may still write there.
    shutil.rmtree(path / CHECKPOINTS, ignore_errors=True)
    for name in (*FILES.values(), INITIAL):
        (path / name).unlink(missing_ok=True)


def shed_all(folder: Path) -> None:
    """Removes the weights of all trials of a search.

    Args:
        folder: folder of the search.
    """
    for path in (folder / "trials").glob("*/"):
        shed(path)


def _trial(state: dict[str, Any], clock: dict[str, Any]) -> Trial:
    values = state["hyperparameters"]["values"]
    return Trial(
        number=state["trial_id"],
        status=STATES[state["status"]],
        values={name: value for name, value in values.items() if "/" not in name},
        score=state["score"] if state["status"] == "COMPLETED" else None,
        reason=state["message"] or "",
        since=clock["since"],
        seconds=clock["seconds"],
        epochs=values.get("tuner/epochs"),
        earlier=values.get("tuner/trial_id"),
        before=values.get("tuner/initial_epoch", 0),
    )
