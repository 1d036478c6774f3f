"""What is measured of a net on its way through training: data, without a framework."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

    from pipelines.core.run import Run

WATCHED = "watched.csv"
"""In a run directory: a row for each step that was probed."""


@dataclass(frozen=True)
class Probe:
    """What is measured on the way, and when.

    Args:
        steps: after which steps; 0 is before the first. Of an execution of several steps only the end can be measured:
            the row of a step inside is of that end, and says so.
        measure: from the net, with the weights of that step, to numbers by column, always the same columns. It may run
            the net in inference, and must not change it.

    Example:
        Probe({0, 600}, lambda net: {"accuracy": accuracy(net.predict(images, verbose=0), labels)})
    """

    steps: Collection[int]
    measure: "Callable[[keras.Model], Mapping[str, float]]"


Probes = Callable[["Run", Path | None], Probe]
"""From a run and the folder of prepared data to what is measured on its way."""
