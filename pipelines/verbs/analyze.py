"""`highway analyze`: reads the gates of a trained net and measures the cost of closing its layers."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console
from rich.table import Table

from pipelines.analysis.analyze import PAGE, analyze
from pipelines.core.console import say
from pipelines.core.frozen import Count, Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import Weights
from pipelines.core.sync import synced
from pipelines.core.url import Location

if TYPE_CHECKING:
    from pipelines.analysis.measuring import Analysis


class Arguments(Frozen):
    """Reads the gates of a trained net, closes its layers one by one and writes tables, arrays, figures and a page."""

    run: tyro.conf.Positional[Location]
    """The run directory, or its URL."""
    to: Path | None = None
    """Folder to write; an analysis in it is replaced. Default: analysis/ in the run directory."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch with the best validation score."""
    data: str | None = None
    """Data set to read; default: the run's own."""
    split: Literal["auto", "train", "validation", "test"] = "auto"
    """Split to read; "auto" reads the training split, as in the paper, except that it takes the routes of examples from
    the validation split if there is one. The test split is read only if it is named."""
    examples: Count | None = None
    """Maximum number of examples to read, evenly spaced over the split; default: all."""
    units: bool = False
    """Also close each unit or channel on its own."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway analyze`.

    Raises:
        UserError: see `analyze`.
    """
    given = parse(Arguments, arguments, "highway analyze", Arguments.__doc__ or "")
    console = Console()
    with synced(given.run) as run:
        folder, found = analyze(
            run, given.to, weights=given.weights, data=given.data, split=given.split, examples=given.examples,
            units=given.units, data_dir=given.data_dir, console=console,
        )  # fmt: skip
        console.print(_table(found))
        say(console, f"written: {folder / PAGE}, with figures, layers.csv and arrays.npz")


def _table(found: "Analysis") -> Table:
    from highway_keras.analysis import effective_depth, open_layers
    from pipelines.analysis import summary

    layers = len(found.layout.layers)
    intact = ", ".join(f"{name} {value:.4g}" for name, value in found.lesions.intact.items())
    shown = Table(
        title=f"{found.whole.name}, {found.whole.split} split, {found.whole.count:,} examples: {intact}",
        title_justify="left",
        show_header=False,
    )
    shown.add_row("highway layers", f"{layers}")
    shown.add_row("sum of their mean gates", f"{open_layers(found.statistics):.2f}")
    for score, limit in summary.tolerances(found.lesions).items():
        shown.add_row(f"{summary.counted(score)} when closed", f"{effective_depth(found.lesions, limit, score)}")
    dead = found.statistics.dead
    shown.add_row("dead gates", f"{int(dead.sum()):,} of {len(dead):,}")
    return shown
