"""`highway evaluate`: evaluates a run on the test split, or on other data."""

import math
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from pipelines.core.console import next_command, say
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import Weights, open_run
from pipelines.core.sync import synced
from pipelines.core.url import Location
from pipelines.data.roots import refuse_unknown
from pipelines.training import evaluation
from pipelines.training.evaluate import FILE, evaluate, folder
from pipelines.training.evaluation import AnyEvaluation, Regression
from pipelines.training.multi_label import MultiLabel


class Arguments(Frozen):
    """Evaluates a run on the test split: scores, loss and results per class; for a regression, errors and R²."""

    run: tyro.conf.Positional[Location]
    """The run directory, or its URL."""
    weights: Weights = "final"
    """Weights after the last step, or of the best epoch on validation."""
    data: str | None = None
    """Other data of the same classes, in place of those of training: a TFDS name, or a path or URL as for `highway
    train`. Without a test split, all images of a folder or file are used, or the training split of a data set; of a
    table, which must have the same columns, all rows."""
    mirror: bool = False
    """Also measure the accuracy of logits averaged over each image and its mirror image (test-time augmentation)."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway evaluate`.

    Raises:
        UserError: see `evaluate`.
    """
    given = parse(Arguments, arguments, "highway evaluate")
    if given.data is not None:
        refuse_unknown(given.data)
    with synced(given.run) as run:
        _evaluate(given, run, Console())


def _evaluate(given: Arguments, run: Path, console: Console) -> None:
    result = evaluate(run, given.weights, given.data_dir, mirror=given.mirror, data=given.data, console=console)
    to = folder(run, given.data)
    data = open_run(run).record.data
    console.print(table(result, "rows" if data.columns else "images"))
    values = "values.png" if data.columns else "forecast.png"
    names: tuple[str, ...] = ("confusion.png", "errors.png")
    if not data.labels or data.multi_label:
        names = ("errors.png",) if data.labels else (values,)
    written = [to / FILE, *(figure for name in names if (figure := to / "figures" / name).exists())]
    if given.data is None:
        written.append(run / "report.md")
    then = "" if given.data else f"\nnext: {next_command('export', run, data_dir=given.data_dir)}"
    say(console, f"written: {', '.join(map(str, written))}{then}")


def table(result: AnyEvaluation, examples: str = "images") -> Table:
    """Formats an evaluation: total and classes (if there are many, the five worst), or the errors of a regression.

    Args:
        result: the evaluation.
        examples: name of the examples of a classifier.
    """
    shown = Table(title=f"{result.data}, {result.split} split, {result.weights} weights", title_justify="left")
    if isinstance(result, Regression):
        for name in ("examples", "RMSE", "mean absolute error", "R²"):
            shown.add_column(name, justify="right")
        shown.add_row(f"{result.count:,}", f"{result.rmse:.4g}", f"{result.mae:.4g}", result.shown_r2())
        shown.caption = "R²: 1 is perfect, 0 is as good as the mean of these targets"
        return shown
    if isinstance(result, MultiLabel):
        return _multi_label(shown, result, examples)
    low, high = result.interval
    for name in ("class", examples, "accuracy", "95% interval", "precision", "F1"):
        shown.add_column(name, justify="left" if name == "class" else "right")
    shown.add_row("all", f"{result.count:,}", f"{result.accuracy:.2%}", f"{low:.2%} to {high:.2%}")
    if result.mirrored is not None:
        correct = round(result.mirrored * result.count)
        ends = "{:.2%} to {:.2%}".format(*evaluation.interval(correct, result.count))
        shown.add_row("all, with mirrors", f"{result.count:,}", f"{result.mirrored:.2%}", ends)
    shown.add_section()
    many = len(result.classes) > 20
    classes = list(enumerate(result.classes))
    # Classes without examples last: `--data` may have some of the classes only.
    worst = sorted(classes, key=lambda one: one[1].accuracy if one[1].count else math.inf)
    for index, item in worst[:5] if many else classes:
        ends = "{:.2%} to {:.2%}".format(*evaluation.interval(item.correct, item.count)) if item.count else ""
        accuracy = f"{item.accuracy:.2%}" if item.count else ""
        scores = accuracy, ends, f"{result.precision(index):.2%}", f"{result.f1(index):.3f}"
        shown.add_row(item.label, f"{item.count:,}", *scores)
    calibration = f", calibration error {error:.2%}" if (error := result.calibration_error) is not None else ""
    shown.caption = f"cross-entropy {result.loss:.4f}{calibration}" + ("; the five worst classes" if many else "")
    return shown


def _multi_label(shown: Table, result: MultiLabel, examples: str) -> Table:
    for name in ("class", examples, "precision", "recall", "F1", "average precision"):
        shown.add_column(name, justify="left" if name == "class" else "right")
    shown.add_row("mean", f"{result.count:,}", "", "", f"{result.macro_f1:.3f}", f"{result.mean_average_precision:.2%}")
    shown.add_section()
    many = len(result.classes) > 20
    worst = sorted(result.classes, key=lambda one: 1.0 if one.average_precision is None else one.average_precision)
    for item in worst[:5] if many else result.classes:
        precision = "" if item.average_precision is None else f"{item.average_precision:.2%}"
        scores = f"{item.precision:.2%}", f"{item.recall:.2%}", f"{item.f1:.3f}", precision
        shown.add_row(item.label, f"{item.count:,}", *scores)
    right = f"{result.label_accuracy:.2%} of the labels right, all of an example for {result.exact:.2%}"
    losses = f"cross-entropy {result.loss:.4f}, calibration error {result.calibration_error:.2%}"
    shown.caption = f"{right}; {losses}" + ("; the five worst classes" if many else "")
    return shown
