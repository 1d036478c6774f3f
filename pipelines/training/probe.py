"""Probes: measurements of a net during training. Imports no framework."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.training import metrics_file

if TYPE_CHECKING:
    import keras

    from pipelines.core.run import Run

PROBE_FILE = "watched.csv"
"""The table of a run's measurements: one row per probed step."""


@dataclass(frozen=True)
class Probe:
    """Measurements and the steps at which they are taken.

    Args:
        steps: the steps, where 0 is before the first one. Nothing can be measured inside an execution of several steps:
            a step there is measured at the end of the execution, and its row carries that last step.
        measure: maps the net with the weights of that step to numbers by column, always the same columns. It may run
            the net in inference but must not change it.

    Example:
        Probe({0, 600}, lambda net: {"accuracy": accuracy(net.predict(images, verbose=0), labels)})
    """

    steps: Collection[int]
    measure: "Callable[[keras.Model], Mapping[str, float]]"


Probes = Callable[["Run", Path | None], Probe]
"""Builds the probe of a run, given the run and the folder of prepared data."""


def cut(path: Path, step: int) -> None:
    """Drops the rows after a step, and a row that was being written when its process was killed.

    Args:
        path: the table, which may be missing.
        step: step from which a run resumes; at 0 it starts anew, and all rows are dropped.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    # Rows are in the order of their steps, and only the last one may be incomplete.
    rows = [line for line in lines[1:] if line.endswith("\n")]
    metrics_file.truncate(path, sum(float(row.partition(",")[0]) <= step for row in rows) if step else 0)
