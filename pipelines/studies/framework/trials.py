"""The settings that a study has drawn at random, as its tables and figures take them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.core.errors import UserError
from pipelines.core.run import Run, open_run
from pipelines.training import table
from pipelines.tuning import search_state as states
from pipelines.tuning.search_plan import SearchPlan, open_plan
from pipelines.tuning.search_state import SearchState, Trial
from pipelines.tuning.space import Value, searched


@dataclass(frozen=True)
class Tried:
    """A setting that was drawn for an arm, at its end.

    Args:
        arm: name of the arm.
        number: of the trial in its search.
        values: what was drawn, as far as it means something to the net.
        losses: on the training images in each epoch, float [epochs]; of one that failed those it had.
        score: validation accuracy of the best epoch; None if it failed.
        reason: why it failed; empty if it did not.
        seconds: spent on it.
        run: its directory; None if its processes died before there was one.
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
        """On the training images in the last epoch."""
        return float(self.losses[-1])

    def row(self, folder: Path, names: Sequence[str]) -> dict[str, str]:
        """Of results.csv.

        Args:
            folder: of the study, from where the path is told.
            names: of all that was drawn.
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
    """All settings that a study has drawn.

    Args:
        tried: in the order they were drawn.
        names: of what was drawn.
    """

    def __init__(self, tried: Iterable[Tried], names: Sequence[str]) -> None:
        self.all = tuple(tried)
        self.names = tuple(names)

    @property
    def runs(self) -> list[Run]:
        """The run directories."""
        return [tried.run for tried in self.all if tried.run]

    def rows(self, folder: Path) -> list[dict[str, str]]:
        """Of results.csv; paths are told from the folder of the study."""
        return [tried.row(folder, self.names) for tried in self.all]

    def of(self, arm: str) -> list[Tried]:
        """The settings of an arm."""
        return [tried for tried in self.all if tried.arm == arm]

    def ranked(self, arm: str) -> list[Tried]:
        """The settings of an arm that did not fail, the lowest training loss in the last epoch first."""
        return sorted((tried for tried in self.of(arm) if tried.score is not None), key=lambda tried: tried.loss)

    def reasons(self, arm: str) -> list[str]:
        """Why settings of an arm failed: one a setting that did."""
        return [tried.reason for tried in self.of(arm) if tried.score is None]


def read(folder: Path) -> Trials:
    """Reads a search that is over.

    Args:
        folder: of the search.

    Returns:
        Its trials, in the order they were drawn.

    Raises:
        UserError: the search is not over, or one of its files is damaged.
    """
    plan, state = open_plan(folder), states.read(folder)
    if state is None or not state.over:
        raise UserError(f"the search in {folder} is not over. Repeat the command to go on with it.")
    return Trials((_tried(folder, plan, state, trial) for trial in state.trials), tuple(searched(plan.space)))


def _tried(folder: Path, plan: SearchPlan, state: SearchState, trial: Trial) -> Tried:
    path = folder / "trials" / state.root(trial).number
    return Tried(
        arm=plan.net(trial.values),
        number=trial.number,
        values={name: value for name, value in plan.effective(trial.values).items() if name != "net"},
        losses=np.array([row["loss"] for row in table.read(path / "metrics.csv")]),
        score=trial.score,
        reason=trial.reason,
        seconds=trial.seconds,
        run=open_run(path) if path.exists() else None,
    )


def _cell(value: Value) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
