"""Randomly drawn settings of a study, for its tables and figures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.core.errors import UserError
from pipelines.core.run import Run, open_run
from pipelines.training import metrics_file
from pipelines.tuning import search_state as states
from pipelines.tuning.search_plan import SearchPlan, open_plan
from pipelines.tuning.search_state import SearchState, Trial
from pipelines.tuning.space import Value, searched


@dataclass(frozen=True)
class Tried:
    """A setting that was drawn for an arm and tried.

    Args:
        arm: name of the arm.
        number: number of the trial in its search.
        values: drawn hyperparameters that affect the net.
        losses: training loss of each epoch, float [epochs]; up to the failure if it failed.
        score: validation accuracy of the best epoch; None if it failed.
        reason: reason for the failure; empty if it did not fail.
        seconds: duration of training.
        run: run directory; None if the processes died before they created one.
    """

    arm: str
    number: str
    values: Mapping[str, Value]
    losses: np.ndarray
    score: float | None
    reason: str
    seconds: float
    run: Run | None

    @property
    def loss(self) -> float:
        """The training loss in the last epoch."""
        return float(self.losses[-1])

    def row(self, folder: Path, names: Sequence[str]) -> dict[str, str]:
        """The setting's row of results.csv.

        Args:
            folder: folder of the study; the path is relative to it.
            names: names of all drawn hyperparameters.
        """
        record = self.run.record if self.run else None
        return {
            "arm": self.arm,
            "trial": self.number,
            "state": "failed" if self.score is None else "finished",
            "loss": "" if self.score is None else f"{self.loss:.6g}",
            "best_val_accuracy": "" if self.score is None else f"{self.score:.6g}",
            **{name: _cell(self.values.get(name, "")) for name in names},
            "epochs": str(len(self.losses)),
            "steps": str(record.step) if record else "0",
            "examples": str(record.data.counts["train"]) if record else "",
            "parameters": str(record.parameters) if record else "",
            "seconds": f"{self.seconds:.1f}",
            "reason": self.reason,
            "run": str(self.run.path.relative_to(folder)) if self.run else "",
        }


class Trials:
    """The settings that a study has drawn.

    Args:
        tried: the trials, in the order in which they were drawn.
        names: names of the drawn hyperparameters.
    """

    def __init__(self, tried: Iterable[Tried], names: Sequence[str]) -> None:
        self.all = tuple(tried)
        self.names = tuple(names)

    @property
    def runs(self) -> list[Run]:
        """The run directories."""
        return [tried.run for tried in self.all if tried.run]

    def rows(self, folder: Path) -> list[dict[str, str]]:
        """Rows of results.csv, with paths relative to the study's folder."""
        return [tried.row(folder, self.names) for tried in self.all]

    def of(self, arm: str) -> list[Tried]:
        """The settings of an arm."""
        return [tried for tried in self.all if tried.arm == arm]

    def ranked(self, arm: str) -> list[Tried]:
        """The settings of an arm that did not fail, the lowest training loss in the last epoch first."""
        return sorted((tried for tried in self.of(arm) if tried.score is not None), key=lambda tried: tried.loss)

    def reasons(self, arm: str) -> list[str]:
        """Reasons of failure, one per failed setting of an arm."""
        return [tried.reason for tried in self.of(arm) if tried.score is None]


def read(folder: Path) -> Trials:
    """Reads a finished search.

    Args:
        folder: folder of the search.

    Returns:
        Its trials, in the order they were drawn.

    Raises:
        UserError: the search is not finished, or one of its files is damaged.
    """
    plan, state = open_plan(folder), states.read(folder)
    if state is None or not state.over:
        raise UserError(f"the search in {folder} is not finished. Repeat the command to resume it.")
    return Trials((_tried(folder, plan, state, trial) for trial in state.trials), tuple(searched(plan.space)))


def _tried(folder: Path, plan: SearchPlan, state: SearchState, trial: Trial) -> Tried:
    path = folder / "trials" / state.root(trial).number
    return Tried(
        arm=plan.net(trial.values),
        number=trial.number,
        values={name: value for name, value in plan.effective(trial.values).items() if name != "net"},
        losses=np.array([row["loss"] for row in metrics_file.read(path / "metrics.csv")]),
        score=trial.score,
        reason=trial.reason,
        seconds=trial.seconds,
        run=open_run(path) if path.exists() else None,
    )


def _cell(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
