"""Reference images or rows of a version: a few that it must predict like the Keras model, and a few to show."""

import io
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from serving.errors import ModelError, RequestError
from serving.manifest import VALUE, Manifest
from serving.package import again
from serving.rows import Value, check, decode

# Number of images, and of rows, that a version is tried on, and the largest number of examples to show.
COMPARED, COMPARED_ROWS, SHOWN = 4, 64, 12
# Number of rows of a regression to show.
SHOWN_VALUES = 6
# Name of the array with the true class of each example, or 1 for each of its classes and 0 for the others; versions
# exported before it was added lack it.
CLASSES = "classes"


class Sample(NamedTuple):
    """An image or a row to show."""

    png: bytes
    """The image as a PNG file, of the size of the net's input; empty for a row."""
    label: str | None
    """Name of its true class, or of its classes; None for regressions, and in versions exported without it."""
    row: dict[str, Value] | None = None
    """Values by column; None for an image."""


class Samples(NamedTuple):
    """Images or rows with the predictions of the Keras model, and some of them to show."""

    inputs: np.ndarray
    """uint8 `[n, height, width, channels]`, or float32 `[n, columns]`."""
    predicted: np.ndarray
    """The output that the manifest calls `predicted`, float32 `[n, classes]` or `[n, 1]`."""
    shown: tuple[Sample, ...] = ()
    """One example of each of several classes; of a regression, examples from the smallest value to the largest."""


def read(file: bytes, content: Manifest, path: Path) -> Samples:
    """Reads the reference examples of a version.

    Args:
        file: content of `parity.npz`.
        content: the manifest.
        path: path of the file, for the message.

    Returns:
        The first examples with their predictions, and examples to show.

    Raises:
        ModelError: they do not fit the inputs and outputs of the version.
    """
    key = f"{content.unit}s"
    try:
        with np.load(io.BytesIO(file), allow_pickle=False) as kept:
            inputs, predicted = kept[key], kept[content.predicted]
            classes = kept.get(CLASSES)
    except KeyError:
        raise ModelError(f"{path} lacks {key} or {content.predicted}. {again(path)}.") from None
    except MemoryError:
        raise
    except Exception:
        # Each kind of damage has its own error, and NumPy's message recommends to load it unsafely.
        raise ModelError(f"{path} is damaged: it is not an archive of NumPy arrays. {again(path)}.") from None
    shapes = (inputs.shape[1:], predicted.shape[1:], len(inputs))
    width = 1 if content.predicted == VALUE else len(content.labels)
    if shapes != (content.input.shape[1:], (width,), len(predicted)) or inputs.dtype != content.input.dtype:
        raise ModelError(f"{path} has {key} or {content.predicted} of another shape than the manifest. {again(path)}.")
    if not len(inputs):
        raise ModelError(f"{path} has no {key} to try the model on. {again(path)}.")
    sets = (len(content.labels),) if content.multi_label else ()
    values = 2 if content.multi_label else len(content.labels)
    if classes is not None and (classes.shape != (len(inputs), *sets) or not np.isin(classes, np.arange(values)).all()):
        raise ModelError(f"{path} has classes that its {key} or the manifest do not have. {again(path)}.")
    if content.is_table:
        try:
            check(inputs, content)
        except RequestError as error:
            raise ModelError(f"{path} has rows that its columns do not allow: {error} {again(path)}.") from None
    if content.predicted == VALUE:
        ascending = np.argsort(predicted[:, 0], kind="stable")
        places = ascending[_evenly(len(ascending), SHOWN_VALUES)]
    else:
        places = _of_each_class(np.argmax(predicted, axis=-1) if classes is None else classes)
    shown = tuple(_sample(inputs[place], place, classes, content) for place in places)
    count = COMPARED_ROWS if content.is_table else COMPARED
    return Samples(inputs[:count].copy(), predicted[:count].copy(), shown)


def _of_each_class(classes: np.ndarray) -> np.ndarray:
    """Chooses the first example of each class; of many classes, some that are evenly spaced."""
    if classes.ndim == 2:
        first = np.unique(classes.argmax(axis=0)[classes.any(axis=0)])
    else:
        _, first = np.unique(classes, return_index=True)
    return first[_evenly(len(first), SHOWN)]


def _evenly(count: int, most: int) -> np.ndarray:
    return np.linspace(0, count - 1, min(count, most)).astype(int)


def _sample(example: np.ndarray, place: int, classes: np.ndarray | None, content: Manifest) -> Sample:
    label = None
    if classes is not None:
        chosen = np.flatnonzero(classes[place]) if content.multi_label else classes[place : place + 1]
        label = ", ".join(content.labels[one] for one in chosen) or None
    if content.is_table:
        return Sample(b"", label, decode(example, content.columns))
    return Sample(_png(example), label)


def _png(image: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image).save(file, "PNG")
    return file.getvalue()
