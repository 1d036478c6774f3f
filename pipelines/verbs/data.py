"""`highway data`: lists, prepares and draws data sets, and measures the throughput of the training input."""

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import tyro
from pydantic import Field
from rich.console import Console

from pipelines.core.config import Config
from pipelines.core.console import say, table_console
from pipelines.core.errors import UserError
from pipelines.core.files import check_figure, check_writable, removing_new, writing
from pipelines.core.frameworks import load as load_frameworks
from pipelines.core.frozen import Count, Frozen
from pipelines.core.parsing import parse
from pipelines.data.roots import data_root, refuse_unknown

if TYPE_CHECKING:
    from pipelines.data.own.prepare import OwnData
    from pipelines.data.own.rows import TableData

DESCRIPTION = """Lists data sets, prepares one, draws samples of one, or measures the throughput of the training input.

  highway data                          known and prepared data sets
  highway data prepare cifar10          download and prepare (mnist_5k and fama_french need no download)
  highway data show cifar10_19          samples: as stored, preprocessed, augmented; also for mine.json
  highway data show photos              your own labelled images: classes, sizes, problems, samples
  highway data show houses.csv --target price    your own table: columns, target, task, splits, unused columns
  highway data throughput cifar10_19    examples per second of the training input alone"""
# Fields of a configuration about data of the user's own.
FIELDS = ("target", "task", "label_separator", "image_size", "image_fit", "group", "skip_damaged")
# Recipe and preset of data alone.
NONE = "none"
NUMBERS = {"classes", "train", "validation", "test", "on disk"}


class Arguments(Frozen):
    """Arguments of `highway data`."""

    action: tyro.conf.Positional[Literal["list", "prepare", "show", "throughput"]] = "list"
    """Action."""
    name: tyro.conf.Positional[str | None] = None
    """Data set (TFDS name, folder of a prepared one; path or URL of your own labelled images: a folder of folders, a
    table, an `.npz` file, tar files; or of a table of numbers); or a recipe, a recipe file or a run's `config.json`."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""
    target: str | None = None
    """Column of a table of numbers that is predicted; default: one named target, label, class or y."""
    task: Literal["auto", "classification", "regression"] = "auto"
    """Predict a class or a number from a table of numbers; "auto" decides by the values of the target."""
    label_separator: Annotated[str, Field(min_length=1)] | None = None
    """Text between the classes in a label of your own data, such as a comma; images or rows then have any number of
    classes."""
    image_size: tuple[Count, ...] = (32,)
    """Side, or height and width, to which your own images are scaled."""
    image_fit: Literal["crop", "pad", "squash"] = "crop"
    """Crop your images to that shape around the centre, pad them with grey, or squash them."""
    group: str | None = None
    """Column of your own table whose equal values stay in one split."""
    skip_damaged: bool = False
    """Leave out images of your own that cannot be read."""
    to: Path | None = None
    """Figure for show to write (.png, .pdf or .svg); default: NAME-samples.png."""


def main(arguments: list[str]) -> None:
    """Lists data sets, prepares one, draws its samples or measures its throughput.

    Args:
        arguments: the words after `highway data`.

    Raises:
        UserError: a name is missing or unknown, or the data are not available.
    """
    parsed = parse(Arguments, arguments, "highway data", DESCRIPTION)
    if parsed.to is not None and parsed.action != "show":
        raise UserError(f"--to is for 'highway data show'. Received: highway data {parsed.action} --to {parsed.to}.")
    if parsed.action == "list":
        if parsed.name is not None:
            raise UserError(f"'list' takes no name. Did you mean: highway data show {parsed.name}")
        _list(parsed.data_dir)
        return
    if parsed.name is None:
        raise UserError(f"which data set? The command is highway data {parsed.action} NAME; highway data lists them.")
    if parsed.action == "prepare":
        _prepare(parsed)
    elif parsed.action == "show":
        _show(parsed)
    else:
        _throughput(parsed)


def _list(data_dir: Path | None) -> None:
    """Prints the known data sets, and all others that are prepared in the folder of data sets."""
    from rich.filesize import decimal
    from rich.table import Table

    from pipelines.data.listing import SPLITS, listed

    console = table_console()
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in ("data", "version", "inputs", "classes", *SPLITS, "on disk", "where"):
        table.add_column(column, overflow="fold", justify="right" if column in NUMBERS else "left")
    for data in listed(data_dir):
        counts = [f"{data.counts[split]:,}" if data.counts[split] else "-" for split in data.counts] or [""] * 3
        size = decimal(data.size) if data.counts else ""
        table.add_row(data.name, data.version, data.inputs, data.classes, *counts, size, data.where)
    console.print(table)
    say(console, f"Data sets are in {data_root(data_dir)} (--data-dir, TFDS_DATA_DIR).")


def _prepare(given: Arguments) -> None:
    config = _any(given)
    folder = given.data_dir and given.data_dir.expanduser()
    with removing_new(folder) if folder else nullcontext():
        if folder:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
        console = Console()
        load_frameworks(console=console)
        from pipelines.data.own.prepare import resolved
        from pipelines.data.sources import open_builder

        data = resolved(config, given.data_dir, Console(stderr=True)).data
        say(console, f"{given.name} is ready in {open_builder(data, given.data_dir).data_dir}")


def _show(given: Arguments) -> None:
    config = _any(given)
    path = given.to or Path(f"{Path(config.data).absolute().name.replace(':', '-')}-samples.png")
    check_figure(path, "--to")
    console = Console()
    load_frameworks(console=console)
    from pipelines.data.own import by_url

    with by_url.local(config.data, Console(stderr=True)) as data:
        _show_here(config.model_copy(update={"data": data}), given, path, console)


def _show_here(config: Config, given: Arguments, path: Path, console: Console) -> None:
    from pipelines.data.images import conversion
    from pipelines.data.own import prepare as own
    from pipelines.data.own.table_data import read_table
    from pipelines.data.samples import draw_samples

    if own.is_table(config.data):
        if given.to:
            raise UserError(f"--to is for a figure of images, and {config.data} is a table of numbers. Leave it out.")
        _describe_table(read_table(config), console)
        return
    check_writable(path.parent)
    if own.is_own(config.data):
        found = own.read(config.data, config.group, Console(stderr=True), config.label_separator)
        _describe(found, config.skip_damaged)
        kind = conversion.FITS[config.image_fit]
        prepared = own.prepare(found, config.height_and_width, Console(stderr=True), kind)
        config = own.named(config.model_copy(update={"data": str(prepared)}), str(given.name))
    draw_samples(config.data, config if config.recipe != NONE else None, given.data_dir, path)
    say(console, f"samples are in {path}")


def _describe(data: "OwnData", skip_damaged: bool) -> None:
    """Prints classes, counts, sizes and problems of the user's own data."""
    from collections import Counter
    from dataclasses import replace

    from rich.table import Table
    from rich.text import Text

    from pipelines.data.own.item import Split
    from pipelines.data.own.survey import notes, refuse

    console = Console()
    table = Table(box=None, pad_edge=False)
    splits = [split for split in get_args(Split) if data.counts[split]]
    for column in ("class", *splits):
        table.add_column(column, overflow="fold", justify="left" if column == "class" else "right")
    images = list(zip(data.found.images, data.splits, strict=True))
    counts = Counter((label, split) for image, split in images for label in image.item.labels)
    for label in data.found.labels:
        # Names of classes may look like markup.
        table.add_row(Text(label), *(f"{counts[label, split]:,}" for split in splits))
    table.add_row("all", *(f"{data.counts[split]:,}" for split in splits))
    console.print(table)
    sizes = {image.size for image, _ in images}
    low, high = (" x ".join(str(end(side)) for side in zip(*sizes, strict=True)) for end in (min, max))
    size = f"size: {low}" if low == high else f"sizes: from {low} to {high}"
    say(console, f"{size}, {'grey' if data.found.is_grey else 'colour'}")
    # Damaged images are listed below, whether training leaves them out or not.
    for note in notes(replace(data.found, damaged=()), data.splits):
        say(console, f"note: {note}")
    for damage in data.found.damaged:
        say(console, f"damaged: {damage}")
    try:
        refuse(data.found, data.splits, skip_damaged)
    except UserError as error:
        say(console, f"training refuses these data: {error}")


def _describe_table(data: "TableData", console: Console) -> None:
    """Prints columns, target and splits of the user's own table, its unused columns and its peculiarities."""
    from rich.table import Table
    from rich.text import Text

    from pipelines.data.own.item import Split
    from pipelines.data.own.rows import class_counts

    table = Table(box=None, pad_edge=False)
    for name in ("column", "kind", "missing", "values"):
        table.add_column(name, overflow="fold", justify="right" if name == "missing" else "left")
    for column in data.surveyed:
        missing = f"{column.missing:,}" if column.missing else "-"
        # Names and categories may look like markup.
        table.add_row(Text(column.name), column.kind, missing, Text(column.values))
    console.print(table)
    splits = [split for split in get_args(Split) if data.counts[split]]
    say(console, f"target: {data.target}\ntask: {data.task}")
    if data.labels:
        counts = class_counts(data.truth, len(data.labels))
        shown = ", ".join(f"{label} {count:,}" for label, count in zip(data.labels, counts, strict=True))
        say(console, f"classes: {shown}")
    else:
        ends = f"from {data.truth.min():.4g} to {data.truth.max():.4g}"
        say(console, f"values: {ends}, mean {data.truth.mean():.4g}, standard deviation {data.truth.std():.4g}")
    say(console, f"rows: {', '.join(f'{data.counts[split]:,} {split}' for split in splits)}")
    for name, why in data.left_out.items():
        say(console, f"left out: {name or 'a column'} {why}")
    for note in data.notes:
        say(console, f"note: {note}")


def _throughput(given: Arguments) -> None:
    config = _any(given)
    console = Console()
    load_frameworks(console=console)
    from pipelines.core.environment import cores, cpu
    from pipelines.data.batches import config_throughput
    from pipelines.data.own.prepare import resolved
    from pipelines.data.samples import settings

    config = resolved(config, given.data_dir, Console(stderr=True))
    speed = config_throughput(config, given.data_dir)
    model, features = cpu()
    say(console, f"{speed:,.0f} examples/s, {config.data} in batches of {config.batch_size}: {settings(config)}")
    say(console, f"measured on {cores()} cores, {model} ({' '.join(features) or 'no known features'}), input alone")


def _any(given: Arguments) -> Config:
    """Returns the configuration of a recipe, by its name or file, or one for data alone."""
    from pipelines import recipes

    assert given.name is not None, "checked before"
    if given.name in recipes.names() or given.name.endswith(".json"):
        defaults = {name: Arguments.model_fields[name].default for name in FIELDS}
        if ignored := [name for name in FIELDS if getattr(given, name) != defaults[name]]:
            option = f"--{ignored[0].replace('_', '-')}"
            raise UserError(f"{option} is for your own data, and the recipe {given.name} sets it itself. Leave it out.")
        return recipes.named_recipe(given.name).config
    refuse_unknown(given.name)
    settings = {name: getattr(given, name) for name in FIELDS}
    return Config(recipe=NONE, model={"preset": NONE}, data=given.name, **settings)
