"""Classifies picture files with an exported model. Needs no TensorFlow."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core.errors import UserError
from serving.answers import Guess, Prediction
from serving.errors import ServingError

if TYPE_CHECKING:
    from rich.table import Table

BATCH = 64
TOP = 3


def predict(model: Path, pictures: Sequence[Path], count: int = TOP) -> tuple[Path, list[Prediction]]:
    """Classifies picture files.

    Args:
        model: a version folder, or a model's folder, whose newest version is taken.
        pictures: the files. All are read before the first is classified: one that cannot be is an error for all.
        count: how many classes to name.

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
        for picture, row, classes in zip(pictures[start:], probabilities, top(probabilities, count), strict=False):
            guesses = tuple(Guess(label=labels[index], probability=float(row[index])) for index in classes)
            predictions.append(Prediction(file=str(picture), top=guesses))
    return opened.folder, predictions


def table(predictions: Sequence[Prediction]) -> "Table":
    """Predictions as a table: file, label, probability, and the classes that come next."""
    from rich.markup import escape
    from rich.table import Table

    shown = Table("picture", "label")
    shown.add_column("probability", justify="right")
    shown.add_column("next")
    for prediction in predictions:
        first, *others = prediction.top
        following = ", ".join(f"{escape(guess.label)} {guess.probability:.1%}" for guess in others)
        shown.add_row(
            escape(prediction.file or ""), f"[bold]{escape(first.label)}[/]", f"{first.probability:.1%}", following
        )
    return shown
