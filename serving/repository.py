"""The folders of a model repository: `<name>/<version>/`, with integers for versions."""

from pathlib import Path

from serving import manifest
from serving.errors import ModelError


def versions(folder: Path) -> list[int]:
    """Numbers of the versions in a model's folder, rising; whatever is not a positive integer is no version."""
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if entry.is_dir() and _is_version(entry.name))


def models(root: Path) -> list[Path]:
    """The folders of all models in a repository: those that have versions."""
    if not root.is_dir():
        return []
    return sorted(folder for folder in root.iterdir() if versions(folder))


def find(path: Path) -> Path:
    """The version that a path means: itself, or the newest one in it.

    Args:
        path: a version folder, or the folder of a model with its versions.

    Returns:
        The version folder.

    Raises:
        ModelError: if the path is neither.

    Example:
        newest = find(Path("models/demo"))
    """
    if not path.exists():
        raise ModelError(f"there is no model {path}. Make one with `highway export`, or check the path.")
    if (path / manifest.NAME).is_file():
        return path
    if found := versions(path):
        return path / str(found[-1])
    raise ModelError(
        f"{path} is no model: expected a version folder with {manifest.NAME}, or a folder of versions "
        "(1, 2, ...). Make one with `highway export`."
    )


def _is_version(name: str) -> bool:
    return name.isascii() and name.isdecimal() and int(name) > 0 and str(int(name)) == name
