"""Batches of images: decoded, converted to inputs of the net, and predicted."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.core.console import printable
from pipelines.core.errors import UserError
from pipelines.core.url import Stored, read_all
from pipelines.inference.inputs import Fetched
from serving import image_files
from serving.errors import ImageError, OutputError
from serving.model import Model

# With nets of 10 to 50 layers on one thread, larger batches are no faster per image.
BATCH = 128
# Large images are put into smaller batches, which bounds memory and spreads them over the threads.
BATCH_BYTES = 2**19


class NetInput(NamedTuple):
    """An image converted to the net's input, or the reason why there is no prediction for it."""

    name: str
    image: np.ndarray | None
    error: str | None
    digits: int | None = None
    """Number of digits in the image, if the model counts them."""


def batches(fetched: Iterable[Fetched]) -> Iterator[list[Fetched]]:
    """Groups images into batches, each of which one thread decodes and predicts."""
    batch: list[Fetched] = []
    size = 0
    for image in fetched:
        batch.append(image)
        size += _size(image.content)
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def converter(model: Model) -> Callable[[list[Fetched]], list[NetInput]]:
    """Returns a thread-safe function that decodes images and converts them to the net's inputs."""

    def convert(image: Fetched) -> NetInput:
        try:
            images, boxes, _ = model.see(_decoded(image, model))
            return NetInput(image.name, images[0], None, None if boxes is None else len(boxes))
        except ImageError as error:
            return NetInput(image.name, None, printable(str(error)))
        except OutputError as error:
            return NetInput(image.name, None, printable(f"{image.name}: {error.fault}. Use another version of it."))

    return lambda batch: [convert(image) for image in _read(batch)]


def predicted(model: Model, inputs: Sequence[NetInput]) -> tuple[list[NetInput], dict[str, np.ndarray]]:
    """Predicts a batch of images.

    Args:
        model: the model.
        inputs: the images.

    Returns:
        The images, of which those with NaN or infinity as an output have an error now; and the outputs for those
        without an error.

    Raises:
        UserError: the model fails on the batch.
    """
    images = {place: one.image for place, one in enumerate(inputs) if one.image is not None}
    # An empty batch is predicted too, because the widths of its outputs are needed.
    shape = (len(images), *model.manifest.input.shape[1:])
    try:
        outputs = model.predict(np.stack([*images.values()]) if images else np.empty(shape, np.uint8))
    except OutputError as error:
        raise UserError(f"{error.fault}. Use another version of it.") from error
    checked, places, wrong = [*inputs], [*images], not_finite(outputs)
    for row, output in wrong.items():
        name = inputs[places[row]].name
        checked[places[row]] = NetInput(name, None, not_finite_message(output, name))
    return checked, {name: np.delete(value, [*wrong], axis=0) for name, value in outputs.items()}


def not_finite(outputs: Mapping[str, np.ndarray]) -> dict[int, str]:
    """Returns the places of examples with NaN or infinity, each with the name of the first such output."""
    found: dict[int, str] = {}
    for name, value in outputs.items():
        found = dict.fromkeys(np.flatnonzero(~np.isfinite(value).all(axis=-1)).tolist(), name) | found
    return found


def not_finite_message(output: str, example: str) -> str:
    """Returns a sentence on an example with NaN or infinity as an output."""
    return f"the model computes NaN or infinity as {output} of {example}. Use another version of it."


def _read(batch: list[Fetched]) -> list[Fetched]:
    """Reads the images of a batch that are in a bucket, all concurrently."""
    urls = [image.content.url for image in batch if isinstance(image.content, Stored)]
    contents = dict(zip(urls, read_all(urls), strict=True))

    def read(image: Fetched) -> Fetched:
        if not isinstance(image.content, Stored):
            return image
        content = contents[image.content.url]
        return image._replace(content=ImageError(f"{image.name} does not exist.") if content is None else content)

    return [read(image) for image in batch]


def _size(content: bytes | Path | Stored | ImageError) -> int:
    """Size of an encoded image in bytes; 0 if the image is missing, an error that reading it reports."""
    if isinstance(content, bytes):
        return len(content)
    if isinstance(content, Stored):
        return content.size
    if isinstance(content, Path):
        with suppress(OSError):
            return content.stat().st_size
    return 0


def _decoded(image: Fetched, model: Model) -> np.ndarray:
    if isinstance(image.content, ImageError):
        raise image.content
    side, grey = model.side, model.manifest.is_grey
    if isinstance(image.content, Path):
        return image_files.read(image.content, side, grey)
    assert isinstance(image.content, bytes), "objects are read batch by batch"
    return image_files.decode(image.content, image.name, side=side, grey=grey)
