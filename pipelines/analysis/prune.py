"""Prunes a run: removes the highway layers that its net can spare, and writes the rest as another run."""

import functools
import math
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from pipelines.core import environment, frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import check_writable, csv_text, replacing_folder, write_text
from pipelines.core.run import FILES, Pruned, Run, Weights, model_file, open_run

if TYPE_CHECKING:
    import keras

    from highway_keras.analysis import Elimination
    from pipelines.data.sources import Split

EXAMPLES = 1000
CURVE = "pruning.csv"


class AllowedChange(NamedTuple):
    """Changes of a score for the worse: of the accuracy, or of the loss in proportion to it."""

    tolerance: float
    """Tolerated by default."""
    useless: float
    """Beyond this one and the tolerance, no further layers are closed: such nets are of no use."""


CHANGES = {"accuracy": AllowedChange(0.001, 0.1), "loss": AllowedChange(0.01, 1.0)}


def prune(
    path: Path,
    to: Path,
    *,
    tolerance: float | None = None,
    weights: Weights = "final",
    examples: int = EXAMPLES,
    data_dir: Path | None = None,
    console: Console | None = None,
) -> Run:
    """Removes as many highway layers as a run's net can spare, and writes a new run.

    Layers are closed one after the other, the least costly first (`highway_keras.analysis.lesion_greedily`), on the
    validation split or, without one, on the training split. What is left is not trained any further.

    Args:
        path: the run directory.
        to: the run directory to create.
        tolerance: largest loss of accuracy, as a fraction of the examples, below 1; or, for a regression and for any
            number of classes per example, largest increase of the loss in proportion to it. None for the defaults in
            `CHANGES`.
        weights: "final" or "best".
        examples: maximum number of examples to read, evenly spaced over the split.
        data_dir: folder of prepared data; None for the TFDS default.
        console: where to print progress; None prints to standard output.

    Returns:
        The new run.

    Raises:
        UserError: the new folder exists or cannot be written, the tolerance is no fraction, the run lacks these weights
            or highway layers, its data are not available, no layer can be spared, or its layers cannot be removed.

    Example:
        prune(Path("runs/mnist_dense_50"), Path("runs/mnist_dense_50-pruned")).record.parameters
    """
    run = open_run(path)
    has_accuracy = bool(run.record.data.labels) and not run.record.data.multi_label
    if tolerance is not None and tolerance >= 1 and has_accuracy:
        raise UserError(
            "the tolerance of accuracy is a fraction of the examples, below 1: 0.05 allows 5 percentage points. "
            f"Received: {tolerance:g}."
        )
    model_file(run, weights, data_dir)
    if to.exists() or to.is_symlink():
        raise UserError(f"{to} exists already, and a run is never overwritten. Name another folder with --to DIR.")
    check_writable(to.parent)
    frameworks.load(console=console)
    from highway_keras import analysis, surgery
    from pipelines.analysis import examples as reading
    from pipelines.analysis.figures import draw_elimination
    from pipelines.analysis.measuring import scores_of
    from pipelines.analysis.progress import AnalysisProgress
    from pipelines.training import report

    net = reading.opened(run, weights, data_dir=data_dir)
    split: Split = "validation" if net.info.counts["validation"] else "train"
    part = reading.part(net, split, examples)
    layers = len(net.layout.layers)
    with AnalysisProgress(console or Console()).step("closing layers", layers, "layers") as advance:
        is_useless = functools.partial(_is_useless, tolerance=tolerance or 0.0)
        found = analysis.lesion_greedily(net.model, part.batches, scores_of(part), advance, is_useless)
    score = _score(found.scores)
    allowed = CHANGES[score].tolerance if tolerance is None else tolerance
    count = found.spared(allowed * _unit(score, float(found.scores["loss"][0])), score)
    if not count:
        raise UserError(_refusal(path, found, score, allowed))
    try:
        smaller = surgery.pruned(net.model, found.names(count))
    except ValueError as error:
        raise UserError(f"the net of {path} cannot be pruned. {error}") from error
    at = found.closed.tolist().index(count)
    before, after = ({name: float(values[place]) for name, values in found.scores.items()} for place in (0, at))
    described = Pruned(
        source=path.resolve().name,
        weights=weights,
        layers=layers,
        parameters=run.record.parameters,
        removed=found.names(count),
        split=split,
        examples=found.examples,
        tolerance=allowed,
        before=before,
        after=after,
    )
    with replacing_folder(to) as aside:
        new = _write(run, smaller, described, aside)
        write_text(aside / CURVE, csv_text(_rows(found)))
        title = f"{run.config.recipe} on {part.name}, {split}"
        draw_elimination(aside / "figures" / "pruning.png", found, count, title)
        report.write(new)
    return Run(to, new.config, new.record)


def _write(run: Run, net: "keras.Model", pruned: Pruned, folder: Path) -> Run:
    """Writes a pruned net as a run, with what evaluation and export need of the run that it comes from."""
    from pipelines.training import memory

    for name in ("config.json", "preprocess.npz"):
        shutil.copy(run.path / name, folder / name)
    net.save(folder / FILES["final"])
    new = Run(folder, run.config, run.record)
    new.update(
        created=environment.now(),
        command=environment.command(),
        versions=environment.versions(),
        code=environment.code(),
        # Nothing is left to do, though an unfinished run may be pruned in its best weights.
        state="finished",
        trained=False,
        parameters=memory.trained_weights(net),
        # They are of the whole net.
        gates={},
        metrics={},
        pruned=pruned,
    )
    return new


def _score(scores: Mapping[str, object]) -> str:
    return "accuracy" if "accuracy" in scores else "loss"


def _is_useless(intact: Mapping[str, float], now: Mapping[str, float], tolerance: float) -> bool:
    from highway_keras.analysis.lesions import ROUNDING

    score = _score(now)
    worse = intact[score] - now[score] if score == "accuracy" else now[score] - intact[score]
    return worse > max(CHANGES[score].useless, tolerance) * _unit(score, intact["loss"]) + ROUNDING


def _unit(score: str, loss: float) -> float:
    """Returns the change of a score that counts as 1."""
    return 1.0 if score == "accuracy" else abs(loss)


def _refusal(path: Path, found: "Elimination", score: str, allowed: float) -> str:
    before, after = (float(found.scores[score][place]) for place in (0, 1))
    if math.isnan(before):
        return f"the {score} of {path} is not a number, so no change of it can be tolerated. Train the net again."
    change, limit = f"from {before:.4g} to {after:.4g}", f"{allowed:g} of the loss"
    if score == "accuracy":
        change, limit = f"from {before:.2%} to {after:.2%}", f"{100 * allowed:g} percentage points"
    return (
        f"{path} has no highway layer to spare: without {', '.join(found.names(int(found.closed[1])))}, which costs "
        f"least, the {score} changes {change}, and the tolerance is {limit}. Allow more with --tolerance, or train a "
        "net with more layers."
    )


def _rows(found: "Elimination") -> list[list[object]]:
    """Returns the rows of pruning.csv: the scores of each state, and the layers that were closed for it."""
    rows: list[list[object]] = [["closed", *found.scores, "layers"]]
    before = 0
    for place, count in enumerate(found.closed.tolist()):
        names = [found.layout.layers[number] for number in found.order[before:count]]
        rows.append([count, *(f"{values[place]:.6g}" for values in found.scores.values()), " ".join(names)])
        before = count
    return rows
