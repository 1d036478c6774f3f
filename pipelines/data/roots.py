"""Names of data sets, and the folders that hold prepared ones. Imports no framework."""

import importlib.util
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from pipelines.core.errors import UserError, nearest
from pipelines.core.files import user_cache
from pipelines.core.url import Url, is_url

# Data sets made from installed packages, without a download.
OWN = ("mnist_5k", "fama_french")
KNOWN = (*OWN, "mnist", "fashion_mnist", "cifar10", "cifar100")
# File in the folder of a prepared data set, which TFDS writes last.
INFO = "dataset_info.json"
# Version of every data set that is prepared from the user's own data.
VERSION = "1.0.0"
# Ends of names of tables.
TABLES = (".csv", ".tsv", ".parquet")
# A URL with the first digits of the digest of its prepared form.
_PINNED = re.compile(r"(.+)#([0-9a-f]{16})")
# Definitions in the source of TFDS that may name a data set.
_DEFINITION = re.compile(r"^class (\w+)\(|\bname ?= ?[\"'](\w+)[\"']", re.MULTILINE)
# The places for underscores in a name in camel case.
_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<!^)(?=[A-Z][a-z0-9])")


def data_root(data_dir: Path | None) -> Path:
    """Returns the folder of data sets: the given one, else TFDS_DATA_DIR, else ~/tensorflow_datasets.

    Args:
        data_dir: the folder given on the command line, if any.

    Returns:
        The folder. Only ~/tensorflow_datasets may be missing.

    Raises:
        UserError: the given folder or TFDS_DATA_DIR is missing.
    """
    named = data_dir or os.environ.get("TFDS_DATA_DIR")
    if not named:
        return Path.home() / "tensorflow_datasets"
    root = Path(named).expanduser()
    if not root.is_dir():
        origin = "--data-dir" if data_dir else "TFDS_DATA_DIR"
        raise UserError(f"there is no folder '{root}' ({origin}). Create it, or name the folder of your data sets.")
    return root


def roots(data: str, data_dir: Path | None) -> list[Path]:
    """Lists the folders that may hold a data set, in order of preference.

    Our own data sets are stored in the user's cache if the folder of data sets is not writable.

    Args:
        data: TFDS name.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
    """
    root = data_root(data_dir)
    if base_name(data) not in OWN or is_writable(root):
        return [root]
    return [root, user_cache() / "datasets"]


def is_writable(root: Path) -> bool:
    """Returns whether data sets can be created in a folder that may be missing."""
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    # Root may write anywhere, but a folder without any write permission counts as read-only even for root.
    return os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def base_name(data: str) -> str:
    """Returns the name without config and version."""
    return re.split("[/:]", data)[0]


def data_name(path: Path) -> str:
    """Returns the name of the data set: that of the file or folder, in the form that TFDS requires."""
    name = re.sub(r"\W+", "_", path.stem.lower(), flags=re.ASCII).strip("_") or "data"
    return name if name[0].isalpha() and name not in KNOWN else f"own_{name}"


def own_folder(digest: str, name: str) -> Path:
    """Returns the folder, which may be missing, of a data set that is prepared from the user's own data.

    Args:
        digest: digest of everything that its files depend on.
        name: name of the data set.
    """
    return user_cache() / "own" / digest[:16] / name / VERSION


def pinned(url: Url, folder: Path) -> str:
    """Returns the name of prepared data from a URL. It is valid on every machine, unlike the path of the folder.

    Args:
        url: the URL.
        folder: the folder of the prepared data.

    Example:
        pinned(Url("s3://bucket/photos"), folder)  # "s3://bucket/photos#0123456789abcdef"
    """
    return f"{url}#{folder.parents[1].name}"


def unpinned(data: str) -> tuple[str, Path | None]:
    """Splits the name of prepared data from a URL.

    Args:
        data: the word after `--data`.

    Returns:
        The URL, and the folder of the prepared data, which may be missing. For any other word, the word and None.
    """
    if not is_url(data):
        return data, None
    found = _PINNED.fullmatch(data)
    if found is None:
        return data.rstrip("/"), None
    url, digest = found.groups()
    return url, own_folder(digest, data_name(Path(url)))


def path_of(data: str) -> Path:
    """Returns the path that a word stands for; `~` is the home folder.

    Args:
        data: the word after `--data`, but no URL.

    Raises:
        UserError: no file can have this name, or its folder cannot be read, or there is no such user.

    Example:
        path_of("~/photos")
    """
    try:
        path = Path(data).expanduser()
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    except RuntimeError as error:
        raise UserError(f"the home folder of {base_name(data)} is unknown. Write the path in full: {data}.") from error
    except OSError as error:
        raise UserError(f"{data} cannot be opened: {error.strerror}. Check the path.") from error
    return path


def refuse_unknown(data: str) -> None:
    """Refuses a name that no data set of TFDS has, long before TFDS can be imported.

    Args:
        data: the word after `--data`; paths, names of files and URLs are not checked.

    Raises:
        UserError: there is no such data set, or see `path_of`.

    Example:
        refuse_unknown("minst")  # Did you mean 'mnist'?
    """
    if (
        is_url(data)
        or path_of(data).exists()
        or data.startswith(("/", "~"))
        or "." in base_name(data)
        or base_name(data) in KNOWN
    ):
        return
    names = _possible_names()
    if names and base_name(data) not in names:
        raise unknown(data, names)


def refuse_missing(data: str) -> None:
    """Refuses a table that does not exist, such as the one that the recipe for tables names.

    Args:
        data: the word after `--data`.

    Raises:
        UserError: there is no such file, or see `path_of`.
    """
    if not is_url(data) and not path_of(data).exists() and Path(data).suffix.lower() in TABLES:
        raise UserError(f"there is no file {Path(data)}. Name your table: --data FILE --target COLUMN.")


def unknown(data: str, names: Iterable[str]) -> UserError:
    """Builds the error for a name that no data set has.

    Args:
        data: the name.
        names: names that exist.
    """
    close = nearest(data, KNOWN) or nearest(data, names)
    hint = f"Did you mean '{close}'? " if close else ""
    return UserError(
        f"there is no data set '{data}'. {hint}Expected one of TensorFlow Datasets with 'image' and 'label', "
        f"or 'features' and 'target' ({', '.join(KNOWN)}, ...), or the folder of a prepared one."
    )


def _possible_names() -> set[str]:
    """Returns the names of all data sets of TFDS, and more: every class and folder counts as one."""
    spec = importlib.util.find_spec("tensorflow_datasets")
    names: set[str] = set()
    for folder in (spec and spec.submodule_search_locations) or ():
        for path in Path(folder).rglob("*.py"):
            names.add(path.parent.name)
            for kind, name in _DEFINITION.findall(path.read_text(errors="replace")):
                names.add(name or _WORD.sub("_", kind).lower())
    return names
