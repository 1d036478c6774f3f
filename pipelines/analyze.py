"""`highway analyze`: what the gates of a trained net do, and what it loses without them."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console
from rich.table import Table

from pipelines import frameworks
from pipelines.arguments import parse
from pipelines.config import Count, Frozen
from pipelines.errors import UserError
from pipelines.files import replacing_folder
from pipelines.run import Weights, model_file, open_run

if TYPE_CHECKING:
    from pipelines.analyzing.measuring import Analysis
    from pipelines.data.sources import Split

PAGE = "analysis.md"


class Arguments(Frozen):
    """Reads the gates of a trained net, closes its layers one by one, and writes tables, arrays, figures and a page."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    to: Path | None = None
    """Folder to write, or to replace if an analysis is in it; none is analysis/ in the run directory."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch that did best on validation."""
    data: str | None = None
    """Data set to read; none is what the run was trained on."""
    split: Literal["auto", "train", "validation", "test"] = "auto"
    """Split to read; "auto" is the training split, as in the paper, and for the routes of examples that of validation
    where there is one. The test split is read only if it is named."""
    examples: Count | None = None
    """Read at most as many examples, evenly spaced over the split; none reads all."""
    units: bool = False
    """Close each unit, or channel, alone too: as many lesions as there are."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway analyze`.

    Raises:
        UserError: see `analyze`.
    """
    given = parse(Arguments, arguments, "highway analyze", Arguments.__doc__ or "")
    console = Console()
    folder, found = analyze(given, console)
    console.print(_table(found))
    console.print(f"written: {folder / PAGE}, with figures, layers.csv and arrays.npz", highlight=False, soft_wrap=True)


def analyze(given: Arguments, console: Console) -> tuple[Path, "Analysis"]:
    """Analyses a run, and writes a folder that is complete or absent.

    Args:
        given: the run, and what to read of which data.
        console: where progress goes.

    Returns:
        The folder, and what was measured.

    Raises:
        UserError: if the run has no such net or no highway layers, the data does not fit or has no such split, or the
            folder holds something else.

    Example:
        analyze(Arguments(run=Path("runs/demo"), examples=1000), Console())
    """
    run = open_run(given.run)
    model_file(run, given.weights)
    folder = given.to or run.path / "analysis"
    _refuse_other(folder)
    frameworks.load()
    from pipelines.analyzing import examples, measuring, writing
    from pipelines.analyzing.progress import Shown

    net = examples.opened(run, given.weights, data=given.data, data_dir=given.data_dir)
    held_out: Split = "validation" if net.info.counts["validation"] else "train"
    splits: tuple[Split, Split] = ("train", held_out) if given.split == "auto" else (given.split, given.split)
    whole, routed = (examples.part(net, split, given.examples) for split in splits)
    # It counts the programs of several models as one that is traced again and again.
    with frameworks.quiet("tensorflow"):
        found = measuring.measure(net, whole, routed, Shown(console), units=given.units)
    with replacing_folder(folder) as aside:
        writing.write(found, run, given.weights, aside)
    return folder, found


def _refuse_other(folder: Path) -> None:
    """Raises a `UserError` if there is something in the folder, and it is no analysis."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / PAGE).is_file()):
        raise UserError(
            f"{folder} holds something else, and only an analysis is replaced. Take another folder: --to DIR."
        )


def _table(found: "Analysis") -> Table:
    from highway_keras.analysis import effective_depth, open_layers
    from pipelines.analyzing import captions

    layers = len(found.layout.layers)
    intact = ", ".join(f"{name} {value:.4g}" for name, value in found.lesions.intact.items())
    shown = Table(
        title=f"{found.whole.name}, {found.whole.split} split, {found.whole.count:,} examples: {intact}",
        title_justify="left",
        show_header=False,
    )
    shown.add_row("highway layers", f"{layers}")
    shown.add_row("sum of their mean gates", f"{open_layers(found.statistics):.2f}")
    for score, limit in captions.tolerances(found.lesions).items():
        shown.add_row(f"{captions.counted(score)} when closed", f"{effective_depth(found.lesions, limit, score)}")
    dead = found.statistics.dead
    shown.add_row("dead gates", f"{int(dead.sum()):,} of {len(dead):,}")
    return shown
