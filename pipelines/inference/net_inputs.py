"""Batches of images, decoded and converted to inputs of the net."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.core.console import printable
from pipelines.core.url import Stored, read_all
from pipelines.inference.inputs import Fetched
from serving import image_files
from serving.errors import ImageError
from serving.model import Model

# With nets of 10 to 50 layers on one thread, larger batches are no faster per image.
BATCH = 128
# Large images are put into smaller batches, which bounds memory and spreads them over the threads.
BATCH_BYTES = 2**19


class NetInput(NamedTuple):
    """An image converted to the net's input, or the reason why the conversion failed."""

    name: str
    image: np.ndarray | None
    error: str | None
    digits: int | None = None
    """Number of digits in the image, if they are counted."""


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


def converter(model: Model, *, counts: bool = False) -> Callable[[list[Fetched]], list[NetInput]]:
    """Returns a thread-safe function that decodes images and converts them to the net's inputs.

    Args:
        model: the model.
        counts: whether to count the digits in each image, if the model finds them.
    """

    def convert(image: Fetched) -> NetInput:
        try:
            decoded = _decoded(image, model)
            if not counts:
                return NetInput(image.name, model.to_input(decoded), None)
            images, boxes, _ = model.see(decoded)
            return NetInput(image.name, images[0], None, None if boxes is None else len(boxes))
        except ImageError as error:
            return NetInput(image.name, None, printable(str(error)))

    return lambda batch: [convert(image) for image in _read(batch)]


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
