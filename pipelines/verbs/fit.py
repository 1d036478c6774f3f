"""`highway fit`: trains, evaluates and exports a model from labelled images or a table, in one command."""

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import Field
from rich.console import Console

from pipelines import recipes
from pipelines.core.console import next_command
from pipelines.core.frozen import Count, Frozen
from pipelines.core.parsing import parse
from pipelines.core.run import refuse_existing
from pipelines.core.sync import synced
from pipelines.core.url import Location, Url
from pipelines.data.roots import refuse_missing
from pipelines.export.bucket import exported_to
from pipelines.export.summary import report
from pipelines.fit.fit import fit

RECIPE, TABLE = "cifar10_modern", "table"


class Arguments(Frozen):
    """Inspects labelled images or a table, picks a net and a training schedule, then trains, evaluates and exports."""

    data: tyro.conf.Positional[str]
    """Your images (a folder of folders, a table of paths, an `.npz` file, tar files), or a table of numbers (CSV, TSV
    or Parquet); a path or a URL."""
    target: str | None = None
    """Column of a table of numbers that is predicted; default: one named target, label, class or y."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Predict a class or a number from a table of numbers; "auto" decides by the values of the target."""
    minutes: Annotated[float, Field(gt=0)] = 10.0
    """Total time in minutes."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """Text between the classes in a label, such as a comma; images or rows then have any number of classes."""
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
    run: Location | None = None
    """Run directory, or its URL; default: runs/ and the name of the data."""
    to: Location | None = None
    """Folder of the model's versions, or its URL; default: models/ and the name of the run directory."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway fit`.

    Raises:
        UserError: see `fit`.
    """
    given = parse(Arguments, arguments, "highway fit", Arguments.__doc__ or "")
    refuse_missing(given.data)
    if isinstance(given.run, Url):
        refuse_existing(given.run)
        given.run.check_writable()
    with synced(given.run, owned=True) if given.run else nullcontext() as run, exported_to(given.to) as to:
        # Data at a URL are copied to find out, which may take long.
        recipe = TABLE if _has_numbers(given.data) else RECIPE
        names = "data", "target", "task", "label_separator", "image_fit", "group", "skip_damaged", "seed"
        config = recipes.get(recipe).config.model_copy(update={name: getattr(given, name) for name in names})
        version = fit(config, given.minutes, side=given.image_size, run=run, to=to.folder)
        to.publish()
        sys.stdout.write(report(version))
        sys.stdout.write(f"      {next_command('serve', version.parent.parent)}\n")


def _has_numbers(data: str) -> bool:
    """Returns whether data are a table without a column of images."""
    from pipelines.data.own import rows
    from pipelines.data.own.by_url import local

    with local(data, Console(stderr=True)) as path:
        return rows.matches(Path(path).expanduser())
