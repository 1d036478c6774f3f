"""`highway predict`: what an exported model sees in picture files. Needs neither TensorFlow nor Keras."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from pydantic import Field

from pipelines.arguments import parse
from pipelines.config import Frozen
from pipelines.errors import UserError
from serving.errors import ServingError

BATCH = 64
TOP = 3


class Arguments(Frozen):
    """Classifies picture files with an exported model."""

    model: tyro.conf.Positional[Path]
    """A version folder, or a model's folder, whose newest version is taken."""
    pictures: tyro.conf.Positional[Annotated[tuple[Path, ...], Field(min_length=1)]]
    """The picture files, of any size: PNG, JPEG and what else Pillow reads."""
    format: Literal["table", "json"] = "table"
    """Print a table, or one JSON object a line for each picture."""
    url: str | None = None
    """Ask the endpoint at this address, where MODEL is the model's name; a key is taken from HIGHWAY_API_KEY."""


@dataclass(frozen=True)
class Guess:
    """A class and how probable it is."""

    label: str
    probability: float


@dataclass(frozen=True)
class Prediction:
    """What a model sees in one picture: the file, and the most probable classes, the first one first."""

    file: str
    top: tuple[Guess, ...]


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway predict`.

    Raises:
        UserError: see `predict`.
    """
    given = parse(Arguments, arguments, "highway predict", Arguments.__doc__ or "")
    # Which version it was is not among the results, which another program may be reading.
    if given.url is not None:
        from pipelines import remote

        used, predictions = remote.predict(given.url, str(given.model), given.pictures)
        sys.stderr.write(f"{used} answered\n")
    else:
        folder, predictions = predict(given.model, given.pictures)
        if folder != given.model:
            sys.stderr.write(f"{folder} is the newest version of {given.model}\n")
    if given.format == "json":
        for prediction in predictions:
            sys.stdout.write(json.dumps(asdict(prediction), ensure_ascii=False) + "\n")
    else:
        show(predictions)


def predict(model: Path, pictures: Sequence[Path]) -> tuple[Path, list[Prediction]]:
    """Classifies picture files.

    Args:
        model: a version folder, or a model's folder, whose newest version is taken.
        pictures: the files. All are read before the first is classified: one that cannot be is an error for all.

    Returns:
        The version folder that was used, and a prediction for each picture.

    Raises:
        UserError: if the model is missing or damaged, or a picture is missing, unreadable or not what the model takes.

    Example:
        folder, predictions = predict(Path("models/demo"), [Path("seven.png")])
        predictions[0].top[0].label  # "7"
    """
    import numpy as np

    from serving.manifest import PROBABILITIES
    from serving.model import open_model, top
    from serving.pictures import read

    try:
        opened = open_model(model)
        images = np.stack([opened.see(read(picture)) for picture in pictures])
    except ServingError as error:
        raise UserError(str(error)) from error
    labels, predictions = opened.manifest.labels, []
    for start in range(0, len(images), BATCH):
        probabilities = opened.predict(images[start : start + BATCH])[PROBABILITIES]
        for picture, row, classes in zip(pictures[start:], probabilities, top(probabilities, TOP), strict=False):
            guesses = tuple(Guess(labels[index], float(row[index])) for index in classes)
            predictions.append(Prediction(str(picture), guesses))
    return opened.folder, predictions


def show(predictions: Sequence[Prediction]) -> None:
    """Prints a table: file, label, probability, and the classes that come next."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table("picture", "label")
    table.add_column("probability", justify="right")
    table.add_column("next")
    for prediction in predictions:
        first, *others = prediction.top
        following = ", ".join(f"{escape(guess.label)} {guess.probability:.1%}" for guess in others)
        table.add_row(escape(prediction.file), f"[bold]{escape(first.label)}[/]", f"{first.probability:.1%}", following)
    Console().print(table)
