"""Schemas of the endpoint's own responses, shared by `/openapi.json` and `serving.client`."""

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Guess(_Part):
    """A class with its probability."""

    label: str
    """Name of the class."""
    probability: float
    """From 0 to 1."""


class Prediction(_Part):
    """Prediction for one image."""

    top: tuple[Guess, ...]
    """The most probable classes, in descending order."""
    file: str | None = None
    """Name of the uploaded file."""
    gates: tuple[float, ...] | None = None
    """Mean gate of each layer, if requested."""
    seen: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    """Input of the net, by row, column and channel, if requested."""


class Answer(_Part):
    """Predictions with the version that made them."""

    model: str
    """Name of the model."""
    version: int
    """Number of the version."""
    predictions: tuple[Prediction, ...]
    """In the order of the images."""
    layers: tuple[str, ...] | None = None
    """Names of the layers of `gates`."""


class ModelInput(_Part):
    """Input of a model."""

    shape: tuple[int, int, int]
    """Height, width and channels."""
    pictures: str | None
    """Content of its image files: handwritten "digit" or "natural"; null if it takes no files."""


class ServedModel(_Part):
    """A model with a version in service."""

    name: str
    """Name of the model."""
    versions: tuple[int, ...]
    """Versions in service, newest first; the newest is the default."""
    labels: dict[str, int]
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
    """Names of its classes, by index."""
