"""`highway fit`: trains, evaluates and exports a model from a folder of labelled images, in one command."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import Field
from rich.console import Console

from pipelines import recipes
from pipelines.core import frameworks
from pipelines.core.console import say
from pipelines.core.errors import UserError
from pipelines.core.frozen import Count, Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import refuse_existing
from pipelines.export.export import export
from pipelines.export.summary import report
from pipelines.training.evaluate import evaluate
from pipelines.training.evaluation import Evaluation
from pipelines.training.train import train

RECIPE = "cifar10_modern"


class Arguments(Frozen):
    """Inspects labelled images, picks a net and a training schedule, then trains, evaluates and exports."""

    data: tyro.conf.Positional[str]
    """Your images: a folder of folders, a table, an `.npz` file, tar files."""
    minutes: Annotated[float, Field(gt=0)] = 10.0
    """Total time in minutes."""
    image_size: Count | None = None
    """Side of the input in pixels; default: by the size of the images and the time."""
    image_fit: Literal["crop", "pad", "squash"] = "crop"
    """Crop images to a square around the centre, pad them with grey, or squash them."""
    group: str | None = None
    """Column of a table whose equal values stay in one split."""
    skip_damaged: bool = False
    """Leave out images that cannot be read."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the training."""
    run: Path | None = None
    """Run directory; default: runs/ and the name of the data."""
    to: Path | None = None
    """Folder of the model's versions; default: models/ and the name of the run directory."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway fit`.

    Raises:
        UserError: the data cannot be read or trained on, the run directory exists, or another step fails.
    """
    given = parse(Arguments, arguments, "highway fit", Arguments.__doc__ or "")
    console = Console()
    frameworks.load(console=console)
    from pipelines.data.own import prepare, survey
    from pipelines.training.choice import choose

    if not prepare.is_own(given.data):
        raise UserError(f"there are no images of your own in {given.data}. Train a data set with `highway train`.")
    own = prepare.read(given.data, given.group, console)
    run = given.run or Path("runs") / own.name
    refuse_existing(run)
    survey.refuse(own.found, own.splits, given.skip_damaged)
    fields = {name: getattr(given, name) for name in ("data", "image_fit", "group", "skip_damaged", "seed")}
    choice = choose(own, recipes.get(RECIPE).config.model_copy(update=fields), given.minutes, given.image_size)
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
    version = export(run, given.to, gates=True, calibrate=bool(own.counts["validation"]))
    sys.stdout.write(report(version))
    sys.stdout.write(f"      highway serve {version.parent.parent}\n")
