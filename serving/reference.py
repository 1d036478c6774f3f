"""Reference images of a version: a few that it must predict like the Keras model, and a few to show."""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from serving.errors import ModelError
from serving.manifest import PROBABILITIES, Manifest

# Number of images that a version is tried on, and the largest number of images to show.
COMPARED, SHOWN = 4, 12
# Name of the array with the true classes; versions exported before it was added lack it.
CLASSES = "classes"


class Sample(NamedTuple):
    """An image to show."""

    png: bytes
    """The image as a PNG file, of the size of the net's input."""
    label: str | None
    """Name of its true class; None in versions that were exported without it."""


class Samples(NamedTuple):
    """Images with the predictions of the Keras model, and images to show."""

    images: np.ndarray
    """uint8 `[n, height, width, channels]`."""
    probabilities: np.ndarray
    """float32 `[n, classes]`."""
    shown: tuple[Sample, ...] = ()
    """One image of each of several classes."""


def read(file: bytes, content: Manifest, path: Path) -> Samples:
    """Reads the reference images of a version.

    Args:
        file: content of `parity.npz`.
        content: the manifest.
        path: path of the file, for the message.

    Returns:
        The first images with their predictions, and images to show.

    Raises:
        ModelError: they do not fit the inputs and outputs of the version.
    """
    try:
        with np.load(io.BytesIO(file), allow_pickle=False) as kept:
            images, probabilities = kept["images"], kept[PROBABILITIES]
            classes = kept.get(CLASSES)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path} is damaged: {error}. Export the model again.") from error
    shapes = (images.shape[1:], probabilities.shape[1:], len(images))
    if shapes != (content.input.shape[1:], (len(content.labels),), len(probabilities)) or images.dtype != np.uint8:
        raise ModelError(f"{path} has images or probabilities of another shape than the manifest. Export it again.")
    if classes is not None and (
        classes.shape != (len(images),) or not np.isin(classes, np.arange(len(content.labels))).all()
    ):
        raise ModelError(f"{path} has classes that its images or the manifest do not have. Export it again.")
    shown = _shown(images, np.argmax(probabilities, axis=-1), classes, content.labels)
    return Samples(images[:COMPARED].copy(), probabilities[:COMPARED].copy(), shown)


def _shown(
    images: np.ndarray, predicted: np.ndarray, classes: np.ndarray | None, labels: Sequence[str]
) -> tuple[Sample, ...]:
    """Chooses the first image of each class; of many classes, some that are evenly spaced."""
    _, first = np.unique(predicted if classes is None else classes, return_index=True)
    if len(first) > SHOWN:
        first = first[np.linspace(0, len(first) - 1, SHOWN).astype(int)]
    return tuple(Sample(_png(images[number]), None if classes is None else labels[classes[number]]) for number in first)


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "PNG")
    return file.getvalue()
