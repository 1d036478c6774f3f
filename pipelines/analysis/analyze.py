"""Analyses a run: reads its gates, closes its layers, and writes a folder with what was found."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import replacing_folder
from pipelines.core.run import Weights, model_file, open_run

if TYPE_CHECKING:
    from pipelines.analysis.measuring import Analysis
    from pipelines.data.sources import Split

PAGE = "analysis.md"


def analyze(
    path: Path,
    to: Path | None = None,
    *,
    weights: Weights = "final",
    data: str | None = None,
    split: Literal["auto", "train", "validation", "test"] = "auto",
    examples: int | None = None,
    units: bool = False,
    data_dir: Path | None = None,
    console: Console | None = None,
) -> tuple[Path, "Analysis"]:
    """Analyses a run, and writes a folder that is complete or absent.

    Args:
        path: the run directory.
        to: the folder to write, or to replace if an analysis is in it; None for analysis/ in the run directory.
        weights: "final" or "best".
        data: data set to read; None for the one that the run was trained on.
        split: to read; "auto" is the training split, and for the routes of examples validation where there is one.
        examples: read at most as many, evenly spaced over the split; None for all.
        units: whether to close each unit, or channel, alone too.
        data_dir: where prepared data lies; None for the default of TFDS.
        console: for progress; None for one of standard output.

    Returns:
        The folder, and what was measured.

    Raises:
        UserError: if the run has no such net or no highway layers, the data does not fit or has no such split, or the
            folder holds something else.

    Example:
        analyze(Path("runs/demo"), examples=1000)
    """
    run = open_run(path)
    model_file(run, weights)
    folder = to or run.path / "analysis"
    _refuse_other(folder)
    frameworks.load()
    from pipelines.analysis import examples as reading
    from pipelines.analysis import measuring, writing
    from pipelines.analysis.progress import Shown

    net = reading.opened(run, weights, data=data, data_dir=data_dir)
    held_out: Split = "validation" if net.info.counts["validation"] else "train"
    splits: tuple[Split, Split] = ("train", held_out) if split == "auto" else (split, split)
    whole, routed = (reading.part(net, one, examples) for one in splits)
    # It counts the programs of several models as one that is traced again and again.
    with frameworks.quiet("tensorflow"):
        found = measuring.measure(net, whole, routed, Shown(console or Console()), units=units)
    with replacing_folder(folder) as aside:
        writing.write(found, run, weights, aside)
    return folder, found


def _refuse_other(folder: Path) -> None:
    """Raises a `UserError` if there is something in the folder, and it is no analysis."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / PAGE).is_file()):
        raise UserError(
            f"{folder} holds something else, and only an analysis is replaced. Take another folder: --to DIR."
        )
