"""`highway data`: lists, prepares and draws data sets, and measures the throughput of the training input."""

import sys
from pathlib import Path
from typing import Any, Literal

import tyro

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.frameworks import load as load_frameworks
from pipelines.core.frozen import Frozen
from pipelines.core.parsing import parse

DESCRIPTION = """Lists data sets, prepares one, draws samples of one, or measures the throughput of the training input.

  highway data                          known and prepared data sets
  highway data prepare cifar10          download and prepare (mnist_5k and fama_french need no download)
  highway data show cifar10_19          samples: as stored, preprocessed, augmented
  highway data throughput cifar10_19    examples per second of the training input alone"""
NUMBERS = {"classes", "train", "validation", "test", "on disk"}


class Arguments(Frozen):
    """Arguments of `highway data`."""

    action: tyro.conf.Positional[Literal["list", "prepare", "show", "throughput"]] = "list"
    """Action."""
    name: tyro.conf.Positional[str | None] = None
    """Data set (TFDS name or folder of a prepared one); for show and throughput, a recipe is possible too."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; default: TFDS_DATA_DIR, then ~/tensorflow_datasets."""
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
        load_frameworks()
        _list(parsed.data_dir)
        return
    if parsed.name is None:
        raise UserError(f"which data set? The command is highway data {parsed.action} NAME; highway data lists them.")
    if parsed.action == "prepare":
        _prepare(parsed.name, parsed.data_dir)
    elif parsed.action == "show":
        _show(parsed.name, parsed.data_dir, parsed.to)
    else:
        _throughput(parsed.name, parsed.data_dir)


def _list(data_dir: Path | None) -> None:
    """Prints the known data sets, and all others that are prepared in the folder of data sets."""
    from rich.console import Console
    from rich.table import Table

    from pipelines.data.catalog import INFO, KNOWN, OWN, data_root, find, open_folder

    root = data_root(data_dir)
    console = Console()
    if not console.is_terminal:
        # Output to a program must not be wrapped.
        console = Console(width=400)
    table = Table(box=None, pad_edge=False, header_style="bold" if console.is_terminal else "")
    for column in ("data", "version", "inputs", "classes", "train", "validation", "test", "on disk", "where"):
        table.add_column(column, overflow="fold", justify="right" if column in NUMBERS else "left")
    listed = set()
    for name in KNOWN:
        try:
            builder = find(name, data_dir)
        except UserError as error:
            table.add_row(name, *[""] * 7, str(error))
            continue
        if builder is None:
            hint = "prepared on first use" if name in OWN else f"highway data prepare {name} downloads it"
            table.add_row(name, *[""] * 7, f"not prepared; {hint}")
        else:
            listed.add(Path(builder.data_dir).resolve())
            table.add_row(name, *_cells(builder))
    for folder in sorted(path.parent for path in [*root.glob(f"*/*/{INFO}"), *root.glob(f"*/*/*/{INFO}")]):
        if folder.resolve() in listed or folder.parts[len(root.parts)].startswith("."):
            continue
        try:
            builder = open_folder(folder)
            table.add_row(builder.name, *_cells(builder))
        except UserError as error:
            table.add_row(str(folder.relative_to(root)), *[""] * 7, str(error))
    console.print(table)
    console.print(f"Data sets are in {root} (--data-dir, TFDS_DATA_DIR).", highlight=False)


def _cells(builder: Any) -> list[str]:
    from pipelines.data.sources import summary

    folder = str(builder.data_dir)
    try:
        info = summary(builder)
    except UserError as error:
        return [str(builder.version), *[""] * 6, f"{folder}: {error}"]
    counts = [f"{info.counts[split]:,}" if info.counts[split] else "-" for split in info.counts]
    inputs = " x ".join(map(str, info.shape))
    return [info.version, inputs, str(len(info.labels) or "-"), *counts, str(builder.info.dataset_size), folder]


def _prepare(name: str, data_dir: Path | None) -> None:
    if data_dir is not None:
        data_dir.expanduser().mkdir(parents=True, exist_ok=True)
    load_frameworks()
    from pipelines.data.catalog import is_folder
    from pipelines.data.sources import open_builder

    if is_folder(name):
        raise UserError(f"'{name}' is a folder; prepare takes the name of a data set. Did you mean --data-dir {name}?")
    _say(f"{name} is ready in {open_builder(name, data_dir).data_dir}")


def _show(name: str, data_dir: Path | None, to: Path | None) -> None:
    path = to or Path(f"{Path(name).name.replace(':', '-')}-samples.png")
    if path.suffix not in {".png", ".pdf", ".svg"}:
        raise UserError(f"--to must end in .png, .pdf or .svg. Received: {path}.")
    config = _config(name)
    load_frameworks()
    from pipelines.data.samples import draw_samples

    draw_samples(config.data if config else name, config, data_dir, path)
    _say(f"samples are in {path}")


def _throughput(name: str, data_dir: Path | None) -> None:
    config = _config(name) or Config(recipe="none", model={"preset": "none"}, data=name)
    load_frameworks()
    from pipelines.core.environment import cores, cpu
    from pipelines.data.batches import throughput, training
    from pipelines.data.preprocess import fit
    from pipelines.data.samples import settings
    from pipelines.data.sources import describe, load

    classes = len(describe(config.data, data_dir, config.validation).labels)
    examples = load(config.data, "train", data_dir, config.validation, config.subset)
    batches = training(
        examples,
        fit(config.preprocess, examples.images),
        augment=config.augment,
        batch_size=config.batch_size,
        seed=config.seed,
        steps=2**40,
        classes=classes,
    )
    speed = throughput(batches)
    model, features = cpu()
    _say(f"{speed:,.0f} examples/s, {config.data} in batches of {config.batch_size}: {settings(config)}")
    _say(f"measured on {cores()} cores, {model} ({' '.join(features) or 'no known features'}), input alone")


def _config(name: str) -> Config | None:
    """Returns the configuration of a recipe, or None if `name` is not one."""
    from pipelines import recipes

    return recipes.get(name).config if name in recipes.names() else None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
