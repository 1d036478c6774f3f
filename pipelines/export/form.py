"""The type of a row in the table of export forms: how a format is written, opened and checked."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from pydantic import BaseModel

if TYPE_CHECKING:
    from pipelines.export.graph import Function

TOLERANCE = 1e-4

Split = Literal["validation", "train"]
# Arrays by the names of the outputs.
Outputs = dict[str, np.ndarray]
Predict = Callable[[np.ndarray], Outputs]


@dataclass(frozen=True)
class TracedNet:
    """The traced functions of a net and the images, or rows of a table, that its forms are made from."""

    predict: "Function"
    """Maps pixels or rows to the outputs; see `pipelines.export.graph.prediction`."""
    convert: "Function | None"
    """Maps an image of any size to the net's input; see `pipelines.data.images.conversion.converter`. None for rows."""
    side: int
    """Length of the shorter side down to which image files are scaled before that; see `serving.image_files`."""
    images: np.ndarray
    """Real images, uint8 `[n, height, width, channels]`; or rows, float32 `[n, columns]`."""
    files: Sequence[bytes]
    """Some of these images as PNG files; none for rows."""
    split: Split
    """Split from which images for measurements are drawn."""
    examples: Callable[[Split, int], tuple[np.ndarray, np.ndarray]]
    """Returns up to a given number of images of a split, with their classes: int [n], or 0 or 1, uint8 [n, classes]."""


class OpenedForm(NamedTuple):
    """A form, opened from disk."""

    images: Predict
    """Predicts from uint8 `[batch, height, width, channels]`, or from rows, float32 `[batch, columns]`."""
    files: Callable[[Sequence[bytes]], Outputs] | None = None
    """Predicts from PNG or JPEG files. Outputs may include the net's input, under `serving.inputs.INPUT`."""


@dataclass(frozen=True)
class Form:
    """One format that models are exported to.

    Args:
        name: name in messages and reports.
        key: name of its parity in the manifest, and of the option that requests it if it is optional.
        files: paths inside the version folder whose presence shows that a version has this form.
        write: writes the form into the version folder; returns its own section of the manifest, if it has one. Forms
            are written in the order of the table.
        load: opens the form of a version folder.
        tolerance: largest allowed difference of a probability or gate mean from the Keras model, or of a value relative
            to the spread of the target; None reports the difference of a lossy form without checking it.
        option: help of the option `--KEY` that requests the form; empty for a form that is always written.
        describe: formats its section of the manifest as a line of the report; None for a form without a line.
    """

    name: str
    key: str
    files: tuple[str, ...]
    write: Callable[[TracedNet, Path], BaseModel | None]
    load: Callable[[Path], OpenedForm]
    tolerance: float | None = TOLERANCE
    option: str = ""
    describe: Callable[[Any], str] | None = None
