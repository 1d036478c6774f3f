"""A study as data, with the two functions that make something of its results."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, Self, TypeVar

from pydantic import model_validator

from pipelines.core.config import Config, Count, Frozen, NonNegative, Provenance, Space
from pipelines.core.run import Weights
from pipelines.studies.framework.tables import Table
from pipelines.training.probe import Probes

if TYPE_CHECKING:
    import numpy as np

    from pipelines.core.run import Run
    from pipelines.studies.framework.figures import Figures


class Published(Frozen):
    """What a source says of an arm, as far as it does: accuracies on the test images, as shares."""

    best: float | None = None
    """Of its runs."""
    mean: float | None = None
    """Over its runs."""
    std: float | None = None
    """Of a sample, over its runs."""
    count: Count | None = None
    """Its runs."""
    loss: float | None = None
    """On the training images at the end, in nats."""

    @classmethod
    def of(cls, *accuracies: float, loss: float | None = None) -> Self:
        """What a source says by naming the accuracy of each of its runs.

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
    """The examples of a data set."""

    train: Count
    """After validation was taken out."""
    test: NonNegative
    """To evaluate on."""
    drawn: bool = True
    """Whether some of them may be drawn at random; those of a series in time may not."""


class Arm(Frozen):
    """One of the things that a study compares: it is trained once for each seed."""

    config: Config
    """What is trained; its seed is set by the study."""
    published: Published = Published()
    """What the source says of it."""
    provenance: Provenance = Provenance()
    """Where the numbers of the configuration come from."""
    data: Counts | None = None
    """The examples of its data; not needed where the configuration takes a subset."""

    @model_validator(mode="after")
    def _examples_are_known(self) -> Self:
        subset = self.config.subset
        if self.data is None and (subset.train is None or subset.test is None):
            raise ValueError("an arm has a subset of its data, or says how many examples that has")
        return self

    @property
    def counts(self) -> Counts:
        """The examples that it takes in full."""
        subset = self.config.subset
        if self.data is None:
            return Counts.model_validate(subset.model_dump(exclude={"seed"}))
        taken = {"train": subset.train or self.data.train, "test": subset.test or self.data.test}
        return self.data.model_copy(update=taken)


class Findings(Protocol):
    """What the page of a study asks of its results: those of runs by seeds, or of settings that were drawn."""

    @property
    def runs(self) -> "Sequence[Run]":
        """The run directories."""

    def of(self, arm: str) -> Sequence[object]:
        """Those of an arm; none if it was not run."""

    def rows(self, folder: Path) -> list[dict[str, str]]:
        """Of results.csv, cells by column: one a run. Paths are told from the folder of the study."""


Found = TypeVar("Found", bound=Findings)


@dataclass(frozen=True)
class Study(Generic[Found]):
    """What `highway reproduce` runs.

    The runs of an arm differ by their seeds (`Results`), or each has settings of its own that are drawn at random
    (`Trials`).

    Args:
        name: of the command line.
        title: of its page.
        source: paper, table or figure.
        asks: its question, in one line.
        arms: what is compared, by name.
        seeds: runs of each arm, with the seeds 0, 1, ...; in a search the settings that are drawn for each.
        differs: what is not as in the source, each in a sentence.
        tables: from the results to what is put beside the source's numbers.
        draw: from the results to figures, with captions that say what the results show and not what a source says.
        measure: what else is measured of a run, once it is trained, in the process that trained it: from the run and
            the folder of prepared data to arrays, which are kept in the run directory. None for nothing.
        probe: what is measured of a net on its way through training, at which steps. None for nothing.
        search: what is drawn for each run, whose seed is that of the arm; arms differ in their nets alone. None for
            runs that differ by their seeds.
        short: the same question, asked by trainings that a CPU finishes; None where those of the study are.
        label: what stands on every table and figure of a study whose trainings are shorter than the source's.
        weights: which are evaluated: those after the last step, or of the epoch that did best on validation.
        draws: how many subsets the source draws, where a seed draws them: further seeds take these in turn, with
            weights of their own. None for one each.
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
