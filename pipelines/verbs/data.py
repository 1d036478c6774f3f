"""`highway data`: what data there is, preparing it, pictures of it, and how fast it comes."""

import sys
from pathlib import Path
from typing import Literal

import tyro

from pipelines.core.config import Config, Frozen
from pipelines.core.errors import UserError
from pipelines.core.frameworks import load as load_frameworks
from pipelines.core.parsing import parse

DESCRIPTION = """Lists data sets, prepares one, draws samples of one, or measures how fast its batches come.

  highway data                          known data sets, and what is prepared
  highway data prepare cifar10          download and prepare (mnist_5k and fama_french need no download)
  highway data show cifar10_19          samples: as stored, preprocessed, augmented
  highway data throughput cifar10_19    examples a second of the training input alone"""


class Arguments(Frozen):
    """What to do with data."""

    action: tyro.conf.Positional[Literal["list", "prepare", "show", "throughput"]] = "list"
    """What to do."""
    name: tyro.conf.Positional[str | None] = None
    """A data set (TFDS name or folder of a prepared one); for show and throughput also a recipe."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""
    to: Path | None = None
    """The picture that show writes (.png, .pdf or .svg); none is NAME-samples.png."""


def main(arguments: list[str]) -> None:
    """Lists data sets, prepares one, draws its samples or measures its throughput.

    Args:
        arguments: the words after `highway data`.

    Raises:
        UserError: a name is missing or unknown, or the data cannot be had.
    """
    asked = parse(Arguments, arguments, "highway data", DESCRIPTION)
    if asked.to is not None and asked.action != "show":
        raise UserError(f"--to belongs to 'highway data show'. Received: highway data {asked.action} --to {asked.to}.")
    if asked.action == "list":
        if asked.name is not None:
            raise UserError(f"'list' takes no name. Did you mean: highway data show {asked.name}")
        load_frameworks()
        from pipelines.data.listing import print_list

        print_list(asked.data_dir)
        return
    if asked.name is None:
        raise UserError(f"which data set? The command is highway data {asked.action} NAME; highway data lists them.")
    if asked.action == "prepare":
        _prepare(asked.name, asked.data_dir)
    elif asked.action == "show":
        _show(asked.name, asked.data_dir, asked.to)
    else:
        _throughput(asked.name, asked.data_dir)


def _prepare(name: str, data_dir: Path | None) -> None:
    if data_dir is not None:
        data_dir.expanduser().mkdir(parents=True, exist_ok=True)
    load_frameworks()
    from pipelines.data.catalog import is_folder
    from pipelines.data.sources import opened

    if is_folder(name):
        raise UserError(f"'{name}' is a folder; prepare takes the name of a data set ({name} may be a --data-dir).")
    _say(f"{name} is ready in {opened(name, data_dir).data_dir}")


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
    from pipelines.data.batches import training
    from pipelines.data.preprocess import fit
    from pipelines.data.samples import settings
    from pipelines.data.sources import describe, load
    from pipelines.data.throughput import throughput

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
    _say(f"measured on {cores()} cores, {model} ({' '.join(features) or 'no features known'}), the input alone")


def _config(name: str) -> Config | None:
    """The configuration of a recipe, or None if `name` must be a data set."""
    from pipelines import recipes

    return recipes.get(name).config if name in recipes.names() else None


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
