"""`release.json` of a model: the versions in service, and their labels.

The endpoint reads it, and the configuration of TF Serving is generated from it, so that both serve the same versions.
Without this file the newest version is served, and there are no labels.
"""

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving import regular_files, repository
from serving.errors import ModelError, damage
from serving.manifest import LARGEST_VERSION

NAME = "release.json"
# Maximum size in bytes.
LARGEST = 2**20
VersionNumber = Annotated[int, Field(ge=1, le=LARGEST_VERSION)]
Label = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_.-]*$", max_length=64)]


class Release(BaseModel):
    """The versions of a model in service."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    versions: Annotated[tuple[VersionNumber, ...], Field(min_length=1)] | None = None
    """Exactly these; null is the newest, whichever that is."""
    labels: dict[Label, VersionNumber] = {}
    """Version by label, such as stable or canary."""

    @model_validator(mode="after")
    def _labels_are_served(self) -> "Release":
        for label, version in self.labels.items():
            if self.versions is None or version not in self.versions:
                raise ValueError(f"label {label} is of version {version}, which is not among the versions")
        return self


def read(model: Path) -> Release:
    """Reads the release of a model.

    Args:
        model: the folder of its versions.

    Returns:
        Its release; without `release.json`, the newest version.

    Raises:
        ModelError: the file is damaged.

    Example:
        read(Path("models/demo")).labels
    """
    path = model / NAME
    try:
        content = regular_files.read(path, LARGEST)
    except FileNotFoundError:
        return Release()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}.") from error
    return parse(content, str(path))


def read_all(root: Path) -> dict[str, Release]:
    """Reads the releases of all models of a repository.

    Args:
        root: the repository.

    Returns:
        The release of each model, by its name.

    Raises:
        ModelError: a release file is damaged.

    Example:
        read_all(Path("models"))["demo"].labels
    """
    return {model.name: read(model) for model in repository.models(root)}


def parse(content: bytes, path: str) -> Release:
    """Returns the release that the content of a `release.json` describes.

    Args:
        content: the content.
        path: where it was found, for messages.

    Raises:
        ModelError: it is damaged or too large.

    Example:
        parse(b'{"versions": [3], "labels": {"stable": 3}}', "models/digits/release.json")
    """
    if len(content) > LARGEST:
        raise ModelError(f"{path} cannot be read: it has more than {LARGEST:,} bytes. Write it with `highway release`.")
    try:
        return Release.model_validate_json(content)
    except ValidationError as error:
        raise ModelError(f"{path} {damage(error)}. Write it with `highway release`.") from error
