"""The endpoint's own answers, as `/openapi.json` describes them and as `serving.client` reads them."""

from pydantic import BaseModel, ConfigDict


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True)


class Guess(_Part):
    """A class and how probable it is."""

    label: str
    """Name of the class."""
    probability: float
    """From 0 to 1."""


class Prediction(_Part):
    """What a model says of one picture."""

    top: tuple[Guess, ...]
    """The most probable classes, the first one first."""
    file: str | None = None
    """Name of the file that was sent."""
    gates: tuple[float, ...] | None = None
    """Mean gate of each layer, if it was asked for."""
    seen: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    """Pixels that the net saw, by row, column and channel, if they were asked for."""


class Answer(_Part):
    """Predictions, and the version that made them."""

    model: str
    """Its name."""
    version: int
    """Its number."""
    predictions: tuple[Prediction, ...]
    """In the order of the pictures."""
    layers: tuple[str, ...] | None = None
    """Names of the layers that `gates` are of."""


class ModelInput(_Part):
    """What a model takes."""

    shape: tuple[int, int, int]
    """Height, width and channels."""
    pictures: str | None
    """What its picture files show: "digit", written by hand, or "natural"; null if it takes no files."""


class ServedModel(_Part):
    """A model of which a version answers."""

    name: str
    """Of the model."""
    versions: tuple[int, ...]
    """Those that answer, the newest first; it answers where no version is asked for."""
    labels: dict[str, int]
    """Version by label."""
    failed: dict[int, str]
    """What is wrong with versions that were refused, or of which the files are no longer as they were loaded."""
    wrong: str = ""
    """What is wrong with its folder, its release or the whole repository, while what is loaded is served on."""
    input: ModelInput
    """Of the newest version."""
    gates: bool
    """Whether the newest version tells its gates."""
    classes: tuple[str, ...]
    """Names of its classes, by index."""
