"""Studies as data: arms, published numbers, and functions for tables and figures."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from pydantic import model_validator

from pipelines.core.config import Config, Provenance, Space
from pipelines.core.frozen import Count, Frozen, NonNegative
from pipelines.core.run import Weights
from pipelines.studies.framework.tables import Table
from pipelines.training.probe import Probes

if TYPE_CHECKING:
    import numpy as np

    from pipelines.core.run import Run
    from pipelines.studies.framework.figures import Figures


class Published(Frozen):
    """Published results of an arm, as far as the source has them. Test accuracies are shares."""

    best: float | None = None
    """Best run."""
    mean: float | None = None
    """Mean over runs."""
    std: float | None = None
    """Sample standard deviation over runs."""
    count: Count | None = None
    """Number of runs."""
    loss: float | None = None
    """Final training loss, in nats."""

    @classmethod
    def of(cls, *accuracies: float, loss: float | None = None) -> Self:
        """Builds the published results from the accuracy of each run.

        Example:
            Published.of(0.926, 0.904, 0.893, loss=0.189).best  # 0.926
        """
        several = len(accuracies) > 1
        return cls(
            best=max(accuracies),
            mean=statistics.mean(accuracies) if several else None,
            std=statistics.stdev(accuracies) if several else None,
            count=len(accuracies),
            loss=loss,
        )


class Counts(Frozen):
    """Numbers of examples of a data set."""

    train: Count
    """Training examples, without those held out for validation."""
    test: NonNegative
    """Test examples."""
    drawn: bool = True
    """True if a budget may draw a random subset; false for a time series."""


MNIST = Counts(train=60_000, test=10_000)
CIFAR = Counts(train=50_000, test=10_000)
"""CIFAR-10 and CIFAR-100 have equally many images."""


class Arm(Frozen):
    """One of the nets that a study compares, trained once per seed."""

    config: Config
    """The training; the study sets its seed."""
    published: Published = Published()
    """Results reported by the source."""
    provenance: Provenance = Provenance()
    """Sources of the numbers in the configuration."""
    data: Counts | None = None
    """Size of the data set; not needed if the configuration takes a subset."""

    @model_validator(mode="after")
    def _examples_are_known(self) -> Self:
        subset = self.config.subset
        if self.data is None and (subset.train is None or subset.test is None):
            raise ValueError("an arm needs a subset of its data, or the number of its examples (data)")
        return self

    @property
    def counts(self) -> Counts:
        """The examples that a full run uses."""
        subset = self.config.subset
        if self.data is None:
            return Counts.model_validate(subset.model_dump(exclude={"seed"}))
        taken = {"train": subset.train or self.data.train, "test": subset.test or self.data.test}
        return self.data.model_copy(update=taken)


class StudyResults(Protocol):
    """Interface of results to a study's page: `Results` over seeds, or `Trials` over drawn settings."""

    @property
    def runs(self) -> "Sequence[Run]":
        """The run directories."""

    def of(self, arm: str) -> Sequence[object]:
        """The results of an arm; empty if it was not run."""

    def rows(self, folder: Path) -> list[dict[str, str]]:
        """Rows of results.csv, one per run, as cells by column. Paths are relative to the study's folder."""


Found = TypeVar("Found", bound=StudyResults)


@dataclass(frozen=True)
class Study(Generic[Found]):
    """A study that `highway reproduce` runs.

    The runs of an arm differ either in their seeds (`Results`) or in randomly drawn settings (`Trials`).

    Args:
        name: name on the command line.
        title: title of its page.
        source: paper, table or figure.
        asks: its question, in one line.
        arms: the nets that are compared, by name.
        seeds: runs of each arm, with the seeds 0, 1, ...; in a search, settings drawn for each arm.
        differs: differences from the source, one sentence each.
        tables: makes tables of the results, next to the source's numbers.
        draw: draws the figures.
        measure: takes further measurements of a trained run, in the process that trained it. It receives the run and
            the folder of prepared data and returns arrays, which are saved in the run directory. None if not needed.
        probe: takes measurements at given steps during training. None if not needed.
        search: space from which the settings of each run are drawn; arms differ only in their nets. None if runs
            differ in their seeds.
        short: the same study with runs that a CPU can finish; None if its own runs are short enough.
        label: printed on every table and figure of a study that trains less than the source.
        weights: weights to evaluate: those after the last step, or of the epoch with the best validation score.
        draws: number of data subsets that the source draws, one per seed; further seeds cycle through these subsets
            with other weights. None if every seed draws its own subset.
        tested: whether runs are evaluated on the test split; False for a study that only chooses among settings.
    """

    name: str
    title: str
    source: str
    asks: str
    arms: Mapping[str, Arm]
    seeds: int
    differs: tuple[str, ...]
    tables: Callable[[Found], list[Table]]
    draw: Callable[[Found, "Figures"], None]
    measure: "Callable[[Run, Path | None], Mapping[str, np.ndarray]] | None" = None
    probe: Probes | None = None
    search: Space | None = None
    short: "Study | None" = None
    label: str = ""
    weights: Weights = "final"
    draws: int | None = None
    tested: bool = True
