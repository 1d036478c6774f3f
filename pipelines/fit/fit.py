"""Fits a net to images of the user's own: chooses net and schedule, trains, evaluates and exports."""

from pathlib import Path

from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.config import Config
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.run import refuse_existing
from pipelines.export.export import export
from pipelines.training.evaluate import evaluate
from pipelines.training.evaluation import Evaluation
from pipelines.training.train import train


def fit(
    config: Config,
    minutes: float = 10.0,
    *,
    side: int | None = None,
    run: Path | None = None,
    to: Path | None = None,
    console: Console | None = None,
) -> Path:
    """Trains a classifier of images of the user's own, evaluates it on their test split, and exports it.

    Args:
        config: the configuration of a modern recipe, with the path of the images and how they are read. Batch size,
            learning rate, initial weights, augmentation and epochs are chosen.
        minutes: time for everything.
        side: side of the input in pixels; None chooses it.
        run: the run directory to create; None is `runs/` and the name of the data.
        to: the folder of the model's versions; None is `models/` and the name of the run directory.
        console: where to print choices, progress and test accuracy; None prints to standard output.

    Returns:
        The exported version.

    Raises:
        UserError: the data cannot be read or trained on, the run directory exists, or another step fails.
        StoppedError: after SIGTERM or SIGINT during training, once the state is saved.

    Example:
        config = recipes.get("cifar10_modern").config
        fit(config.model_copy(update={"data": "photos"}), minutes=30)  # models/photos/1
    """
    console = console or Console()
    frameworks.load(console=console)
    from pipelines.data.own import prepare, survey
    from pipelines.fit.choice import choose

    if not prepare.is_own(config.data):
        raise UserError(f"there are no images of your own in {config.data}. Train a data set with `highway train`.")
    own = prepare.read(config.data, config.group, console)
    run = run or Path("runs") / own.name
    refuse_existing(run)
    survey.refuse(own.found, own.splits, config.skip_damaged)
    choice = choose(own, config, minutes, side)
    for reason in choice.reasons:
        say(console, f"chosen: {reason}")
    # Prepared here, because the images have been read.
    train(prepare.with_prepared(choice.config, own, console), run, console=console)
    if own.counts["test"]:
        result = evaluate(run)
        assert isinstance(result, Evaluation), "images have classes"
        low, high = result.interval
        right = f"{result.correct:,} of {result.count:,} test images right"
        say(console, f"{right}: {result.accuracy:.2%} ({low:.2%} to {high:.2%})")
    return export(run, to, gates=True, calibrate=bool(own.counts["validation"]))
