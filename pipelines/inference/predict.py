"""Classification of image files with an exported model or by an endpoint, without TensorFlow."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pipelines.core.console import printable
from pipelines.core.environment import API_KEY
from pipelines.core.errors import UserError
from pipelines.core.url import Location
from pipelines.data.roots import TABLES
from pipelines.inference.image_ref import SUFFIXES
from serving.errors import ServingError
from serving.schemas import Guess, Prediction, digits_notice

if TYPE_CHECKING:
    from rich.table import Table

TOP = 3
# Limits of a request, well below those of an endpoint; a single image may be larger.
REQUEST_IMAGES, REQUEST_BYTES = 64, 8 * 2**20
# Rest of a sentence about a model.
NO_IMAGES = f"takes rows of a table, not images. Give it a file that ends in {', '.join(TABLES)}."


class Predictions(NamedTuple):
    """Classified images."""

    folder: Path
    """The version that was used."""
    predictions: list[Prediction]
    """One for each image that could be read and predicted."""
    unreadable: list[str]
    """A sentence for each other image, and for a damaged source, which ends the images."""


def is_table(words: Sequence[str]) -> bool:
    """Returns whether arguments name a table, by its suffix.

    Raises:
        UserError: they name a table and something else.
    """
    found = [word for word in words if Path(word).suffix.lower() in TABLES]
    if found and len(words) > 1:
        raise UserError(f"{found[0]} is a table. Tables are predicted one at a time: leave out the other arguments.")
    return bool(found)


def predict(model: Location, images: Sequence[str | Path], count: int = TOP) -> Predictions:
    """Classifies image files.

    Args:
        model: a version folder, a model folder, whose newest version is used, their URL, or the name of a net of the
            package.
        images: files, folders, globs, tar files and splits of data sets; see `pipelines.inference.inputs.sources`.
        count: number of classes to return.

    Returns:
        The version folder, a prediction for each image, and the images that could not be read.

    Raises:
        UserError: the model is missing or damaged or takes no images, a name matches nothing, or there are no images.

    Example:
        predict(Path("models/demo"), ["seven.png"]).predictions[0].top[0].label  # "7"
    """
    from pipelines.inference import stored_model
    from pipelines.inference.inputs import Listing, sources
    from pipelines.inference.net_inputs import batches, converter, predicted
    from serving.manifest import PROBABILITIES
    from serving.model import above_half, open_model, top

    try:
        opened = open_model(stored_model.local(model))
    except ServingError as error:
        raise UserError(str(error)) from error
    if opened.manifest.is_table:
        raise UserError(f"{opened.folder} {NO_IMAGES}")
    listing = Listing(sources([str(image) for image in images], None))
    labels, convert = opened.manifest.labels, converter(opened)
    found = Predictions(opened.folder, [], [])
    for batch in batches(listing.fetched()):
        inputs, outputs = predicted(opened, convert(batch))
        found.unreadable.extend(one.error for one in inputs if one.error)
        readable, probabilities = [one for one in inputs if one.image is not None], outputs[PROBABILITIES]
        for one, row, classes in zip(readable, probabilities, top(probabilities, count), strict=True):
            guesses = tuple(Guess(label=labels[index], probability=float(row[index])) for index in classes)
            present = tuple(above_half(row, labels)) if opened.manifest.multi_label else None
            notice = None if one.digits is None else digits_notice(one.digits)
            found.predictions.append(
                Prediction(file=one.name, top=guesses, labels=present, digits=one.digits, notice=notice)
            )
    if listing.failure and not found.predictions:
        raise listing.failure
    if listing.failure:
        found.unreadable.append(str(listing.failure))
    if not found.predictions and not found.unreadable:
        raise no_images(images)
    return found


def no_images(places: Sequence[str | Path]) -> UserError:
    """Returns the error for folders and archives without images."""
    return UserError(
        f"there are no images in {' '.join(map(str, places))}. Expected files that end in "
        f"{', '.join(sorted(SUFFIXES))}. Name tar files in a folder explicitly, for example with a glob."
    )


def predict_remotely(
    url: str,
    model: str,
    images: Sequence[Path],
    count: int = TOP,
    *,
    version: int | None = None,
    label: str | None = None,
) -> tuple[str, list[Prediction]]:
    """Classifies image files at an endpoint; no model is loaded here.

    Args:
        url: URL of the endpoint; the key is in the environment variable HIGHWAY_API_KEY.
        model: name of the model at the endpoint.
        images: the files. One unreadable or refused file fails the whole call.
        count: number of classes to return.
        version: number of the version; None is the newest in service.
        label: label of the version, instead of its number.

    Returns:
        The version used, as `NAME version NUMBER`, and a prediction for each image.

    Raises:
        UserError: the endpoint is not reachable, has no such model, refuses the key or an image, or unloads the version
            in the meantime.

    Example:
        _, predictions = predict_remotely("http://127.0.0.1:8501", "digits", [Path("seven.png")])
        predictions[0].top[0].label  # "7"
    """
    from serving.client import Client, ClientError

    try:
        with Client(url, os.environ.get(API_KEY) or None) as client:
            answers = []
            for batch in _requests(images):
                answers.append(client.predict(model, batch, version=version, label=label, top=count))
                # One version classifies all images, even if a new one is loaded in the meantime.
                version, label = answers[0].version, None
    except ClientError as error:
        advice = f" Set {API_KEY} to the key of the endpoint." if error.status == 401 else ""
        raise UserError(f"{error}{advice}") from error
    predictions = [prediction for answer in answers for prediction in answer.predictions]
    return f"{model} version {version}", [
        prediction.model_copy(update={"file": printable(str(image))})
        for image, prediction in zip(images, predictions, strict=True)
    ]


def table(predictions: Sequence[Prediction]) -> "Table":
    """Formats predictions as a table: file, label, probability, and the next classes; or all labels, and classes."""
    from rich.markup import escape
    from rich.table import Table

    multi_label = bool(predictions) and predictions[0].labels is not None
    table = Table("image")
    for name in class_headings("label", multi_label):
        table.add_column(name, justify="right" if name == "probability" else "left")
    for prediction in predictions:
        table.add_row(escape(prediction.file or ""), *class_cells(prediction))
    return table


def class_headings(label: str, multi_label: bool) -> list[str]:
    """Returns the headings of the cells of `class_cells`; the first is the argument."""
    return [label, "most probable"] if multi_label else [label, "probability", "next"]


def class_cells(prediction: Prediction) -> list[str]:
    """Formats predicted classes: the class, its probability and the next ones; or all above one half, and the first."""
    from rich.markup import escape

    shown = [f"{escape(guess.label)} {guess.probability:.1%}" for guess in prediction.top]
    if prediction.labels is not None:
        return [f"[bold]{escape(', '.join(prediction.labels)) or 'none'}[/]", ", ".join(shown)]
    best = prediction.top[0]
    return [f"[bold]{escape(best.label)}[/]", f"{best.probability:.1%}", ", ".join(shown[1:])]


def _requests(images: Sequence[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    size = 0
    for image in images:
        # A missing file counts as empty here; the client reports it.
        more = image.stat().st_size if image.is_file() else 0
        if batch and (len(batch) == REQUEST_IMAGES or size + more > REQUEST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(image)
        size += more
    if batch:
        yield batch
