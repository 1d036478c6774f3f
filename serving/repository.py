"""Folders of a model repository: `<name>/<version>/`, with integers as versions."""

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from serving import manifest
from serving.errors import ModelError
from serving.package import pretrained


def is_version(name: str) -> bool:
    """Returns whether a name in a model's folder is a version: a positive integer of up to 64 bits with a sign."""
    return _is_number(name) and int(name) <= manifest.LARGEST_VERSION


def too_large(names: Iterable[str]) -> dict[int, str]:
    """Returns the numbers among names that are too large for a version, with the reason to refuse them."""
    largest = manifest.LARGEST_VERSION
    reason = f"a version's number is at most {largest}. Move its folder away, and export the version again."
    return dict.fromkeys((int(name) for name in names if _is_number(name) and int(name) > largest), reason)


def is_model_name(name: str) -> bool:
    """Returns whether a name in a repository may be a model: it is not hidden, and is text.

    Names appear in JSON, metrics and URLs, so they must be UTF-8.
    """
    return _is_shown(name) and _is_text(name)


def versions(folder: Path) -> list[int]:
    """Returns the versions in a model's folder, ascending; see `is_version`.

    Raises:
        OSError: the folder exists and cannot be read.
    """
    return [version for version in listed(folder)[0] if (folder / str(version)).is_dir()]


def listed(folder: Path) -> tuple[list[int], dict[int, str]]:
    """Returns the versions in a model's folder, ascending, and those whose numbers are `too_large`.

    Links that lead nowhere are among them: what they led to may be missing for a while.

    Raises:
        OSError: the folder exists and cannot be read.
    """
    if not folder.is_dir():
        return [], {}
    names = [entry.name for entry in folder.iterdir() if _is_number(entry.name) and _may_be_folder(entry)]
    return sorted(int(name) for name in names if is_version(name)), too_large(names)


def folders(root: Path) -> list[Path]:
    """Returns the folders in a repository that may be models, by name, without hidden ones.

    Some may have names that are not UTF-8, see `is_model_name`, and some may be links that lead nowhere.

    Raises:
        OSError: the repository cannot be read, or is not a folder.
    """
    with os.scandir(root) as entries:
        names = sorted(entry.name for entry in entries if _is_shown(entry.name))
    return [root / name for name in names if _may_be_folder(root / name)]


def models(root: Path) -> list[Path]:
    """Returns the folders of all models in a repository: those that contain versions.

    Raises:
        OSError: one of them cannot be read.
    """
    if not root.is_dir():
        return []
    return [folder for folder in folders(root) if is_model_name(folder.name) and versions(folder)]


def leads_nowhere(path: Path) -> bool:
    """Returns whether a path is a link without a target, as while a volume is not mounted."""
    return path.is_symlink() and not path.exists()


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


def manifest_stamp(folder: Path) -> object:
    """Returns size and modification time of the manifest; network file systems may change the other fields."""
    found = _stat(folder / manifest.NAME)
    return (found.st_size, found.st_mtime_ns) if isinstance(found, os.stat_result) else found


def files_stamp(folder: Path) -> object:
    """Returns a hash of the sizes and times of all files: copying into a file does not change its folder."""
    try:
        paths = [folder, *sorted(folder.rglob("*"))]
    except OSError as error:
        return error.errno
    found = [_stat(path) for path in paths]
    return hash(
        tuple(
            (one.st_size, one.st_mtime_ns, one.st_ctime_ns) if isinstance(one, os.stat_result) else one for one in found
        )
    )


def find(path: Path) -> Path:
    """Returns the version at a path: the path itself, or the newest version in it.

    Args:
        path: a version folder, the folder of a model with its versions, or the name of a net of the package.

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
    hidden = any(str(path) == folder.name for folder in models(pretrained()))
    advice = "Rename the folder, which hides the net of the package of the same name, or m" if hidden else "M"
    raise ModelError(
        f"{path} is not a model: expected a version folder with {manifest.NAME}, or a folder of versions "
        f"(1, 2, ...). {advice}ake one with `highway export`."
    )


def _may_be_folder(path: Path) -> bool:
    try:
        return path.is_dir() or leads_nowhere(path)
    except OSError:
        # Reading it later reports the reason.
        return True


def _is_number(name: str) -> bool:
    return name.isascii() and name.isdecimal() and int(name) > 0 and str(int(name)) == name


def _is_shown(name: str) -> bool:
    # A new file system has an unreadable lost+found.
    return bool(name) and not name.startswith(".") and name != "lost+found"


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _stat(path: Path) -> os.stat_result | int | None:
    try:
        return path.stat()
    except OSError as error:
        return error.errno
