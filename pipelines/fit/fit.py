"""Fits a net to the user's own images or table: chooses net and schedule, trains, evaluates and exports."""

import dataclasses
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.files import check_writable
from pipelines.core.run import DataRecord, Weights, refuse_existing
from pipelines.export.export import check_folder, default_folder, export
from pipelines.training.evaluate import evaluate
from pipelines.training.evaluation import Evaluation, Regression
from pipelines.training.multi_label import MultiLabel
from pipelines.training.train import train

if TYPE_CHECKING:
    from pipelines.data.own.item import Split

# Fewest validation examples to calibrate probabilities on.
CALIBRATED = 50


def fit(
    config: Config,
    minutes: float = 10.0,
    *,
    side: int | None = None,
    run: Path | None = None,
    to: Path | None = None,
    console: Console | None = None,
) -> Path:
    """Trains a net on the user's own images or table, evaluates it on their test split, and exports it.

    Args:
        config: the configuration of a modern recipe, or of that for tables, with path or URL of the data and how they
            are read. Batch size, learning rate, initial weights, augmentation and epochs are chosen.
        minutes: time for everything.
        side: side of the input in pixels; None chooses it. Must be None for tables.
        run: the run directory to create; None is `runs/` and the name of the data.
        to: the folder of the model's versions; None is `models/` and the name of the run directory.
        console: where to print choices, progress and test accuracy; None prints to standard output.

    Returns:
        The exported version.

    Raises:
        UserError: the data cannot be read or trained on, the run directory exists, a folder is read-only, `to` holds a
            model of other classes or inputs, or another step fails.
        StoppedError: after SIGTERM or SIGINT during training, once the state is saved.

    Example:
        config = recipes.get("cifar10_modern").config
        fit(config.model_copy(update={"data": "photos"}), minutes=30)  # models/photos/1
    """
    deadline = time.monotonic() + 60 * minutes
    console = console or Console()
    frameworks.load(console=console)
    from pipelines.data import sources
    from pipelines.data.own import prepare
    from pipelines.data.own.by_url import local

    with local(config.data, console) as path:
        here = config.model_copy(update={"data": path})
        choose = _for_table if prepare.is_table(path) else _for_images
        plan = choose(here, deadline, side, run, console)
    to = to or default_folder(plan.run)
    info = sources.describe(plan.config.data, None, plan.config.validation, plan.config.subset)
    check_folder(to, plan.run, DataRecord(**dataclasses.asdict(info)))
    train(prepare.named(plan.config, config.data), plan.run, console=console)
    if plan.counts["test"]:
        _report(evaluate(plan.run, plan.weights), plan.examples, plan.target, console)
    calibrate = plan.calibrated and plan.counts["validation"] >= CALIBRATED
    return export(plan.run, to, plan.weights, calibrate=calibrate)


class _FitPlan(NamedTuple):
    """A training run, and how its result is evaluated and exported."""

    config: Config
    """The configuration, with prepared data."""
    run: Path
    """The run directory to create."""
    weights: Weights
    """The weights to evaluate and export."""
    counts: "Counter[Split]"
    """Number of examples in each split."""
    examples: str
    """Name of the examples, in the plural."""
    target: str
    """Column that is predicted; empty for images."""
    calibrated: bool
    """True if the net has probabilities to calibrate."""


def _for_images(config: Config, deadline: float, side: int | None, run: Path | None, console: Console) -> _FitPlan:
    from pipelines.data.own import prepare, survey
    from pipelines.fit.choice import choose

    if not prepare.is_own(config.data):
        raise UserError(f"there are no images of your own in {config.data}. Train a data set with `highway train`.")
    prepare.refuse_target(config)
    own = prepare.read(config.data, config.group, console, config.label_separator)
    run = run or Path("runs") / own.name
    refuse_existing(run)
    check_writable(run)
    survey.refuse(own.found, own.splits, config.skip_damaged)
    with console.status("measuring how long training takes"):
        choice = choose(own, config, deadline, side)
    for reason in choice.reasons:
        say(console, f"chosen: {reason}")
    # Prepared here, because the images have been read.
    ready = prepare.with_prepared(choice.config, own, console)
    return _FitPlan(ready, run, "final", own.counts, "images", "", True)


def _for_table(config: Config, deadline: float, side: int | None, run: Path | None, console: Console) -> _FitPlan:
    from pipelines.data.own import table_data
    from pipelines.data.roots import data_name
    from pipelines.fit.choice import choose_for_table

    if side is not None:
        raise UserError(f"{config.data} is a table of numbers, without images for --image-size. Leave that out.")
    table = table_data.read_table(config)
    run = run or Path("runs") / data_name(Path(table.source))
    refuse_existing(run)
    check_writable(run)
    with console.status("measuring how long training takes"):
        choice = choose_for_table(table, config, deadline)
    for reason in choice.reasons:
        say(console, f"chosen: {reason}")
    ready = table_data.with_table(choice.config, table, console)
    # A net soon memorizes a small table.
    weights: Weights = "best" if table.counts["validation"] else "final"
    return _FitPlan(ready, run, weights, table.counts, "rows", table.target, bool(table.labels))


def _report(result: Evaluation | MultiLabel | Regression, examples: str, target: str, console: Console) -> None:
    """Prints a line about the test split."""
    if isinstance(result, Evaluation):
        low, high = result.interval
        right = f"{result.correct:,} of {result.count:,} test {examples} right"
        say(console, f"{right}: {result.accuracy:.2%} ({low:.2%} to {high:.2%})")
    elif isinstance(result, MultiLabel):
        right = f"{result.label_accuracy:.2%} of the labels right"
        scores = f"mean average precision {result.mean_average_precision:.2%}, macro F1 {result.macro_f1:.3f}, {right}"
        say(console, f"classes of {result.count:,} test {examples}: {scores}")
    else:
        error = f"mean absolute error {result.mae:.4g}, R\u00b2 {result.shown_r2(3)}"
        say(console, f"{target} of {result.count:,} test {examples}: {error}")
