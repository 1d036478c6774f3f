"""Schemas of the endpoint's own responses, shared by `/openapi.json` and `serving.client`."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer

from serving.inputs import Column
from serving.manifest import MOST_DIGITS
from serving.rows import Value

# Maximum number of classes that a request may ask for.
MOST_CLASSES = 1000


def json_version(version: int) -> int | str:
    """Returns a version as it is written in JSON: as a string if JavaScript would round the number."""
    return version if version < 2**53 else str(version)


VersionNumber = Annotated[int, PlainSerializer(json_version, return_type=int | str, when_used="json")]


class _ResponsePart(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Guess(_ResponsePart):
    """A class with its probability."""

    label: str
    """Name of the class."""
    probability: float
    """From 0 to 1."""


class Segment(_ResponsePart):
    """A digit in an image."""

    box: tuple[float, float, float, float]
    """Top, bottom, left and right, as shares of the height and the width of the image."""
    top: tuple[Guess, ...]
    """The most probable classes, in descending order."""


class Prediction(_ResponsePart):
    """Prediction for one image or row."""

    top: tuple[Guess, ...] = ()
    """The most probable classes, in descending order; none in a regression."""
    labels: tuple[str, ...] | None = None
    """All classes with a probability above one half, the most probable first, if there may be any number of them."""
    value: float | None = None
    """Predicted value of a regression."""
    file: str | None = None
    """Name of the uploaded file."""
    gates: tuple[float, ...] | None = None
    """Mean gate of each layer, if requested."""
    maps: tuple[tuple[tuple[float, ...], ...], ...] | None = None
    """Mean gate of each position of each layer in `map_layers`, by row and column, if requested."""
    seen: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    """Input of the net, by row, column and channel, if requested."""
    crop: tuple[float, float, float, float] | None = None
    """Top, bottom, left and right of the part of a natural image that became the input, from 0 to 1. Null for pixels,
    other kinds of image, and versions that were exported before frames were left out."""
    digits: int | None = None
    """Number of digits in the image file: if it is not 1, `top` means nothing. Null for pixels, for images of anything
    else, and for versions that were exported before digits were counted."""
    notice: str | None = None
    """A readable sentence, if the image file does not show one digit."""
    segments: tuple[Segment, ...] | None = None
    """Each digit, from left to right, if requested."""


def digits_notice(digits: int, read: str = "") -> str | None:
    """Returns a sentence on an image that does not show one digit; None if it does.

    Args:
        digits: number of digits in the image.
        read: the digits, if they were classified one by one.

    Example:
        digits_notice(3, "243")  # "There are 3 digits here; from left to right: 243."
    """
    if digits == 0:
        return "There is no digit here, or it is too small."
    if digits == 1:
        return None
    count = f"at least {digits}" if digits == MOST_DIGITS else digits
    return f"There are {count} digits here{f'; from left to right: {read}' if read else ''}."


class Answer(_ResponsePart):
    """Predictions with the version that made them."""

    model: str
    """Name of the model."""
    version: VersionNumber
    """Number of the version; in JSON, a string from 2^53 on."""
    predictions: tuple[Prediction, ...]
    """In the order of the images or rows."""
    target: str | None = None
    """Column of the table that is predicted; null for images."""
    warnings: tuple[str, ...] = ()
    """A sentence for each category that the version does not know, which counts as missing."""
    layers: tuple[str, ...] | None = None
    """Names of the layers of `gates`."""
    map_layers: tuple[str, ...] | None = None
    """Names of the layers of `maps`."""


class ModelInput(_ResponsePart):
    """Input of a model."""

    shape: tuple[int, ...]
    """Height, width and channels; or the number of columns of a table."""
    pictures: str | None
    """Content of its image files: handwritten "digit"; or "natural", of which the centre is taken, "padded" or
    "squashed"; null if it takes no files."""
    columns: tuple[Column, ...] = ()
    """Columns of its table; none for images."""
    target: str | None = None
    """Column of the table that is predicted; null for images."""
    label_separator: str | None = Field(None, exclude_if=lambda separator: separator is None)
    """Text between the classes in a cell of the target; left out if a cell is one class, or a list."""


class ModelSpec(_ResponsePart):
    """A version of a model, in the terms of TF Serving."""

    name: str
    """Name of the model."""
    version: VersionNumber
    """Number of the version."""


class TableMetadata(_ResponsePart):
    """Columns and classes of a version for rows of a table."""

    columns: tuple[Column, ...] = ()
    """Columns that it takes; none for images."""
    target: str | None = None
    """Column that it predicts; null for images."""
    classes: tuple[str, ...] | None = None
    """Names of its classes, by index, none in a regression; null from an endpoint of an earlier version."""
    multi_label: bool = False
    """True if a row may have any number of them."""
    label_separator: str | None = Field(None, exclude_if=lambda separator: separator is None)
    """Text between the classes in a cell of the target; left out if a cell is one class, or a list."""


class VersionMetadata(_ResponsePart):
    """Metadata of one version, at `/v1/models/{model}/metadata`, without TF Serving's signatures."""

    model_spec: ModelSpec
    """The version."""
    metadata: TableMetadata
    """Its columns and classes."""


class VersionFacts(_ResponsePart):
    """Origin and quality of a version in service."""

    version: VersionNumber
    """Number of the version; in JSON, a string from 2^53 on."""
    created: str
    """Time of the export, ISO 8601."""
    net: str
    """Preset of the net."""
    parameters: int
    """Number of trained weights."""
    size: int
    """Bytes of its ONNX graph."""
    data: str | None
    """Data set of the training; null if unknown."""
    test_accuracy: float | None
    """Accuracy on the test split; null if it was not evaluated, and for a regression."""
    test_images: int | None
    """Number of images or rows in the test split."""
    gates: bool
    """True if it returns its gates."""
    maps: bool
    """True if it returns maps of its gates."""
    samples: tuple[str | None, ...]
    """Label of each sample image, `/models/{name}/versions/{version}/samples/{number}.png`, or row; null if unknown."""
    rows: tuple[dict[str, Value], ...] = ()
    """Sample rows, with values by column; none for images."""
    test_mae: float | None = None
    """Mean absolute error of a regression on the test split; null if it was not evaluated, and for classes."""
    test_map: float | None = None
    """Mean average precision on the test split, if there may be any number of classes; null as `test_mae`."""
    test_r2: float | None = None
    """R² of a regression on the test split: 1 is perfect, 0 is as good as the mean; null as `test_mae`."""
    input: ModelInput | None = Field(None, exclude_if=lambda given: given is None)
    """Input of this version; left out if it is that of the newest."""
    classes: tuple[str, ...] | None = Field(None, exclude_if=lambda names: names is None)
    """Names of its classes, by index; left out if they are those of the newest."""
    multi_label: bool | None = Field(None, exclude_if=lambda several: several is None)
    """True if an image or row may have any number of them; left out if this is as in the newest."""


class ServedModel(_ResponsePart):
    """A model with a version in service."""

    name: str
    """Name of the model."""
    versions: tuple[VersionNumber, ...]
    """Versions in service, newest first; the newest is the default."""
    labels: dict[str, VersionNumber]
    """Version by label."""
    failed: dict[int, str]
    """Reasons of versions that were refused, or whose files changed after loading."""
    wrong: str = ""
    """Problem with its folder, its release or the whole repository, while loaded versions stay in service."""
    input: ModelInput
    """Input of the newest version."""
    gates: bool
    """True if the newest version returns its gates."""
    classes: tuple[str, ...]
    """Names of its classes, by index; none in a regression."""
    multi_label: bool = False
    """True if an image or row may have any number of them, so that their probabilities do not sum to 1. This, `classes`
    and `input` are those of the newest version; `facts` has those of other versions that differ."""
    facts: tuple[VersionFacts, ...] = ()
    """Facts about each of `versions`, in their order."""
