"""Analyses a run: reads its gates, closes its layers and writes the results into a folder."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import check_replaceable, replacing_folder
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
    """Analyses a run and writes the results atomically into a folder.

    Args:
        path: the run directory.
        to: the folder to write; an analysis in it is replaced. None for analysis/ in the run directory.
        weights: "final" or "best".
        data: data set to read; None for the one that the run was trained on.
        split: the split to read; "auto" reads the training split, except that it takes the routes of examples from the
            validation split if there is one.
        examples: maximum number of examples to read, evenly spaced over the split; None for all.
        units: whether to also close each unit or channel individually.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress; None for standard output.

    Returns:
        The folder and the measurements.

    Raises:
        UserError: the run lacks these weights or highway layers, the data does not fit or lacks the split, or the
            folder holds something else or cannot be written.

    Example:
        analyze(Path("runs/demo"), examples=1000)
    """
    run = open_run(path)
    model_file(run, weights, data_dir)
    folder = to or run.path / "analysis"
    _refuse_other(folder)
    check_replaceable(folder)
    frameworks.load(console=console)
    from pipelines.analysis import examples as reading
    from pipelines.analysis import measuring, report
    from pipelines.analysis.progress import AnalysisProgress

    net = reading.opened(run, weights, data=data, data_dir=data_dir)
    held_out: Split = "validation" if net.info.counts["validation"] else "train"
    splits: tuple[Split, Split] = ("train", held_out) if split == "auto" else (split, split)
    whole, routed = (reading.part(net, one, examples) for one in splits)
    # TensorFlow would warn: it takes the programs of several models for one that is retraced.
    with frameworks.quiet("tensorflow"):
        found = measuring.measure(net, whole, routed, AnalysisProgress(console or Console()), units=units)
    with replacing_folder(folder) as aside:
        report.write(found, run, weights, aside)
    return folder, found


def _refuse_other(folder: Path) -> None:
    """Raises a `UserError` if the folder holds something other than an analysis."""
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / PAGE).is_file()):
        raise UserError(f"{folder} exists and is not an analysis. Name another folder with --to DIR.")
