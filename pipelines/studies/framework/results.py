"""The runs of a study, for its tables and figures."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipelines.core.errors import UserError
from pipelines.core.run import MEASURED, Run, open_run
from pipelines.studies.framework import tables
from pipelines.training import evaluation, metrics_file
from pipelines.training.evaluation import AnyEvaluation, Evaluation, Regression
from pipelines.training.metrics_file import Row
from pipelines.training.probe import PROBE_FILE


@dataclass(frozen=True)
class Result:
    """A finished run of a study.

    Args:
        arm: name of the arm.
        seed: seed of the run.
        run: run directory.
        rows: rows of metrics.csv, one per epoch.
        evaluation: evaluation on the test split; None if the run diverged, or is not tested.
        tested: whether the study evaluates its runs on the test split.
    """

    arm: str
    seed: int
    run: Run
    rows: tuple[Row, ...]
    evaluation: AnyEvaluation | None
    tested: bool = True

    @property
    def diverged(self) -> bool:
        """True if the run ended because its loss was no longer finite."""
        return self.run.record.state == "diverged"

    @property
    def accuracy(self) -> float | None:
        """Accuracy on the test split; None if there is no evaluation or the run predicts a number."""
        return self.evaluation.accuracy if isinstance(self.evaluation, Evaluation) else None

    @property
    def r2(self) -> float | None:
        """R² on the test split; None if there is no evaluation or the run predicts a class."""
        return self.evaluation.r2 if isinstance(self.evaluation, Regression) else None

    @property
    def measured(self) -> dict[str, np.ndarray]:
        """The arrays of `Study.measure`; empty if the run diverged."""
        if self.diverged:
            return {}
        with np.load(self.run.path / MEASURED) as arrays:
            return dict(arrays)

    def row(self, folder: Path) -> dict[str, str]:
        """The run's row of results.csv, with its path relative to the study's folder."""
        record, config, measured = self.run.record, self.run.config, self.evaluation
        test = {
            "test_accuracy": "" if self.accuracy is None else f"{self.accuracy:.6g}",
            "test_r2": "" if self.r2 is None else f"{self.r2:.6g}",
            "test_loss": "" if measured is None else f"{measured.loss:.6g}",
            "test_examples": "" if measured is None else str(measured.count),
        }
        last = ("loss", "accuracy", *(() if self.tested else ("val_loss", "val_accuracy")))
        return {
            "arm": self.arm,
            "seed": str(self.seed),
            "state": record.state,
            **(test if self.tested else {}),
            **{name: f"{record.metrics[name]:.6g}" if name in record.metrics else "" for name in last},
            "epochs": str(config.epochs),
            "steps": str(record.step),
            "examples": str(record.data.counts["train"]),
            "parameters": str(record.parameters),
            "seconds": f"{record.seconds:.1f}",
            "run": str(self.run.path.relative_to(folder)),
        }


class Results:
    """The runs of a study.

    Args:
        results: results in the order of arms and seeds.
    """

    def __init__(self, results: Iterable[Result]) -> None:
        self.all = tuple(results)

    @property
    def runs(self) -> list[Run]:
        """The run directories."""
        return [result.run for result in self.all]

    def rows(self, folder: Path) -> list[dict[str, str]]:
        """Rows of results.csv, with paths relative to the study's folder."""
        return [result.row(folder) for result in self.all]

    @property
    def several(self) -> bool:
        """True if an arm has more than one run."""
        return len(self.all) > len({result.arm for result in self.all})

    def of(self, arm: str) -> list[Result]:
        """The runs of an arm, by seed."""
        return [result for result in self.all if result.arm == arm]

    def accuracies(self, arm: str) -> list[float]:
        """Test accuracies of the runs of an arm that did not diverge."""
        return [result.accuracy for result in self.of(arm) if result.accuracy is not None]

    def accuracy(self, arm: str) -> str:
        """The accuracies of an arm, as tables show them."""
        return tables.measured(self.accuracies(arm), len(self.of(arm)))

    def final_losses(self, arm: str) -> list[float]:
        """Training loss in the last epoch of each run of an arm that did not diverge."""
        return [float(losses[-1]) for losses in self.curves(arm, "loss")]

    def loss(self, arm: str) -> str:
        """The mean of an arm's final training losses, as tables show it."""
        return tables.mean(self.final_losses(arm), len(self.of(arm)))

    def parameters(self, arm: str) -> str:
        """The number of parameters of an arm's net, as tables show it."""
        return next((tables.number(result.run.record.parameters) for result in self.of(arm)), tables.MISSING)

    def lost(self, arm: str) -> bool:
        """True if an arm was run and all of its runs diverged."""
        return bool(self.of(arm)) and all(result.diverged for result in self.of(arm))

    def measured(self, arm: str, name: str) -> np.ndarray:
        """Stacks a measured array of each run of an arm that did not diverge: `[runs, ...]`, by seed."""
        return np.array([result.measured[name] for result in self.of(arm) if not result.diverged])

    def probed(self, arm: str) -> dict[str, np.ndarray]:
        """Collects the measurements of `Study.probe` from each run of an arm that did not diverge.

        Args:
            arm: name of the arm.

        Returns:
            Arrays by column: "step" is float [rows], the same for all runs; every other column is float [runs, rows].
            Empty if every run diverged.

        Raises:
            UserError: a run was resumed by `highway train`, which does not probe.
        """
        whole = [result.run.path / PROBE_FILE for result in self.of(arm) if not result.diverged]
        tables = [metrics_file.read(path) for path in whole]
        steps = [[row["step"] for row in rows] for rows in tables]
        for path, some in zip(whole, steps, strict=True):
            if some != max(steps, key=len) or not some:
                raise UserError(
                    f"{path} lacks some of the probed steps, as if `highway train` had resumed the run. Remove "
                    f"{path.parent} and repeat the command."
                )
        if not tables:
            return {}
        columns = {name: np.array([[row[name] for row in rows] for rows in tables]) for name in tables[0][0]}
        return columns | {"step": np.array(steps[0])}

    def curves(self, arm: str, column: str) -> np.ndarray:
        """Collects a column of metrics.csv from each run of an arm that did not diverge.

        Args:
            arm: name of the arm.
            column: name of the column, such as "loss".

        Returns:
            float [runs, epochs]; no rows if every run diverged.
        """
        whole = [result for result in self.of(arm) if not result.diverged]
        return np.array([[row[column] for row in result.rows] for result in whole])

    def gates(self, arm: str) -> np.ndarray:
        """Collects the mean transform gate of each layer before training and after each epoch from each run of an arm.

        Args:
            arm: name of an arm whose net has gates.

        Returns:
            float [runs, 1 + epochs, layers]; no rows if every run diverged.
        """
        whole = [result for result in self.of(arm) if not result.diverged]
        return np.array(
            [
                [
                    list(result.run.record.gates.values()),
                    *([row[f"gate/{layer}"] for layer in result.run.record.gates] for row in result.rows),
                ]
                for result in whole
            ]
        )


def read(runs: Sequence[tuple[str, int, Path]], *, tested: bool = True) -> Results:
    """Reads the finished runs of a study.

    Args:
        runs: arm, seed and run directory of each run.
        tested: whether to read evaluations on the test split, which runs of another study may have.

    Returns:
        The results, in the same order.

    Raises:
        UserError: a run directory is missing or damaged.
    """
    return Results(_read(arm, seed, path, tested) for arm, seed, path in runs)


def _read(arm: str, seed: int, path: Path, tested: bool) -> Result:
    run = open_run(path)
    measured = evaluation.of_run(run) if tested else None
    return Result(arm, seed, run, tuple(metrics_file.read(path / "metrics.csv")), measured, tested)
