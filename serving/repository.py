"""Folders of a model repository: `<name>/<version>/`, with integers as versions."""

import importlib.util
import os
import stat
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from serving import manifest
from serving.errors import ModelError


def is_version(name: str) -> bool:
    """Returns whether a name in a model's folder is a version: a positive integer."""
    return name.isascii() and name.isdecimal() and int(name) > 0 and str(int(name)) == name


def is_model_name(name: str) -> bool:
    """Returns whether a name in a repository may be a model: it is not hidden, and is text.

    Names appear in JSON, metrics and URLs, so they must be UTF-8.
    """
    # A new file system has an unreadable lost+found.
    return bool(name) and not name.startswith(".") and name != "lost+found" and _is_text(name)


def versions(folder: Path) -> list[int]:
    """Returns the versions in a model's folder, ascending; only positive integers are versions.

    Raises:
        OSError: the folder exists and cannot be read.
    """
    if not folder.is_dir():
        return []
    return sorted(int(entry.name) for entry in folder.iterdir() if is_version(entry.name) and entry.is_dir())


def folders(root: Path) -> list[Path]:
    """Returns the folders in a repository that may be models, by name, without hidden ones.

    Raises:
        OSError: the repository cannot be read, or is not a folder.
    """
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if is_model_name(entry.name))
    return [root / name for name in names if _may_be_folder(root / name)]


def models(root: Path) -> list[Path]:
    """Returns the folders of all models in a repository: those that contain versions.

    Raises:
        OSError: one of them cannot be read.
    """
    if not root.is_dir():
        return []
    return [folder for folder in folders(root) if versions(folder)]


def identity(folder: Path) -> tuple[int, int] | None:
    """Returns the identity of a folder, which differs from that of an empty mount point at the same path.

    Returns:
        Device and inode; None if there is no accessible folder.
    """
    try:
        found = folder.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino) if stat.S_ISDIR(found.st_mode) else None


def pretrained() -> Path:
    """Returns the repository of the trained nets that come with the package.

    `highway_keras` is not imported, because it imports Keras.
    """
    spec = importlib.util.find_spec("highway_keras")
    assert spec, "it is part of the same distribution"
    return Path(spec.origin or "").parent / "trained"


def find(path: Path) -> Path:
    """Returns the version at a path: the path itself, or the newest version in it.

    Args:
        path: a version folder, the folder of a model with its versions, or the name of a net of `pretrained()`.

    Returns:
        The version folder.

    Raises:
        ModelError: the path is neither.

    Example:
        newest = find(Path("models/demo"))
    """
    if not path.exists():
        known = [folder.name for folder in models(pretrained())]
        if str(path) in known:
            return find(pretrained() / path)
        choices = {name: Path(name) for name in known if path.parent == Path()}
        with suppress(OSError):
            choices |= {model.name: model for model in models(path.parent)}
        if close := get_close_matches(path.name, choices, n=1, cutoff=0.5):
            raise ModelError(f"there is no model {path}. Did you mean {choices[close[0]]}?")
        raise ModelError(
            f"there is no model {path}. Make one with `highway export`, check the path, or name a net of the package: "
            f"{', '.join(known)}."
        )
    if os.path.lexists(path / manifest.NAME):
        return path
    if found := versions(path):
        return path / str(found[-1])
    raise ModelError(
        f"{path} is not a model: expected a version folder with {manifest.NAME}, or a folder of versions "
        "(1, 2, ...). Make one with `highway export`."
    )


def _may_be_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        # Reading it later reports the reason.
        return True


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
