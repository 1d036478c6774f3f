"""`highway prune`: makes a trained net shallower."""

from pathlib import Path
from typing import Annotated

import tyro
from pydantic import Field
from rich.console import Console
from rich.table import Table

from pipelines.analysis.prune import EXAMPLES, prune
from pipelines.core.console import next_command, say
from pipelines.core.frozen import Count, Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import Pruned, Run, Weights
from pipelines.core.sync import synced
from pipelines.core.url import Location


class Arguments(Frozen):
    """Removes the highway layers that a trained net can spare, the least costly first, and writes the rest as a run."""

    run: tyro.conf.Positional[Location]
    """The run directory, or its URL."""
    to: Location | None = None
    """Run directory to create, or its URL; default: RUN-pruned."""
    tolerance: Annotated[float, Field(ge=0)] | None = None
    """Largest loss of accuracy, as a fraction of the examples, below 1 (default: 0.001); for a regression, and if an
    example may have any number of classes, largest increase of the loss in proportion to it (default: 0.01)."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch with the best validation score."""
    examples: Count = EXAMPLES
    """Maximum number of examples on which layers are chosen, evenly spaced over the validation split or, without one,
    over the training split."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway prune`.

    Raises:
        UserError: see `prune`.
    """
    given = parse(Arguments, arguments, "highway prune", Arguments.__doc__ or "")
    console = Console()
    to = given.to or folder(given.run)
    with synced(given.run) as run, synced(to) as aside:
        new = prune(
            run, aside, tolerance=given.tolerance, weights=given.weights, examples=given.examples,
            data_dir=given.data_dir, console=console,
        )  # fmt: skip
    assert new.record.pruned, "it has just been pruned"
    chosen_on = f"{new.record.pruned.examples:,} examples of the {new.record.pruned.split} split"
    say(console, f"chosen and measured on {chosen_on}:")
    console.print(_table(new, new.record.pruned))
    then = "; ".join(next_command(verb, to, data_dir=given.data_dir) for verb in ("evaluate", "export"))
    say(console, f"run directory {to}, report {to / 'report.md'}\nnext: {then}")


def folder(run: Location) -> Location:
    """Returns the run directory to create if none is named: next to the one to prune."""
    if isinstance(run, Path) and run.name in ("", ".."):
        # Such as ".", whose name is elsewhere.
        run = run.resolve()
    return run.with_name(f"{run.name}-pruned")


def _table(run: Run, pruned: Pruned) -> Table:
    shown = Table("", "before", "after")
    shown.add_row("highway layers", f"{pruned.layers}", f"{pruned.layers - len(pruned.removed)}")
    shown.add_row("trained parameters", f"{pruned.parameters:,}", f"{run.record.parameters:,}")
    for name in sorted(pruned.before):
        style = ".2%" if name == "accuracy" else ".4g"
        shown.add_row(name, f"{pruned.before[name]:{style}}", f"{pruned.after[name]:{style}}")
    return shown
