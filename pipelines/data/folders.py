"""Finds prepared data sets on disk; nothing here writes or downloads."""

import os
import re
from pathlib import Path

import tensorflow_datasets as tfds

from pipelines.data import fama_french, mnist_5k
from pipelines.errors import UserError, nearest
from pipelines.files import user_cache

# Made from what installed packages ship: no download, and TFDS knows them by our import alone.
OWN = (mnist_5k.NAME, fama_french.NAME)
KNOWN = (*OWN, "mnist", "fashion_mnist", "cifar10", "cifar100")
INFO = "dataset_info.json"


def data_root(data_dir: Path | None) -> Path:
    """The folder with prepared data sets: the one given, else TFDS_DATA_DIR, else ~/tensorflow_datasets.

    Args:
        data_dir: from the command line.

    Returns:
        The folder. Only the last of the three may be missing.

    Raises:
        UserError: the folder was named and is not there.
    """
    named = data_dir or os.environ.get("TFDS_DATA_DIR")
    if not named:
        return Path.home() / "tensorflow_datasets"
    root = Path(named).expanduser()
    if not root.is_dir():
        origin = "--data-dir" if data_dir else "TFDS_DATA_DIR"
        raise UserError(f"there is no folder '{root}' ({origin}). Create it or name the one that holds your data sets.")
    return root


def roots(data: str, data_dir: Path | None) -> list[Path]:
    """The folders in which a data set may lie prepared, the best first.

    Our own data sets lie in the user's cache where the folder of the data sets cannot be written to.

    Args:
        data: TFDS name.
        data_dir: the folder with data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.
    """
    root = data_root(data_dir)
    if base_name(data) not in OWN or is_writable(root):
        return [root]
    return [root, user_cache() / "datasets"]


def is_writable(root: Path) -> bool:
    """Whether data sets can be made in a folder, or the folder itself where it is missing."""
    existing = next(folder for folder in (root, *root.parents) if folder.exists())
    # The system lets root write anywhere; a folder that nobody may write to is not for us either.
    return os.access(existing, os.W_OK) and bool(existing.stat().st_mode & 0o222)


def is_folder(data: str) -> bool:
    """Whether `data` is the path of a prepared data set, not a name of TFDS ("cifar10", "name/config:1.0.0")."""
    return data.startswith(("/", ".", "~")) or ("/" in data and Path(data).is_dir())


def base_name(data: str) -> str:
    """The name alone, without config and version."""
    return re.split("[/:]", data)[0]


def found(data: str, data_dir: Path | None) -> tfds.core.DatasetBuilder | None:
    """The builder of a data set that is prepared.

    Args:
        data: TFDS name, with config and version if wanted, or the folder of a prepared data set.
        data_dir: the folder with data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Returns:
        A builder whose files are on disk, or None if TFDS knows the name but its files are not there.

    Raises:
        UserError: nothing is known by this name, there is nothing in the folder, or its files are damaged.
    """
    if is_folder(data):
        return in_folder(Path(data).expanduser())
    builders = (builder(data, root) for root in roots(data, data_dir))
    return next((candidate for candidate in builders if is_complete(candidate)), None)


def builder(data: str, root: Path) -> tfds.core.DatasetBuilder:
    """The builder for a TFDS name, whether its files are in `root` or not.

    Args:
        data: TFDS name, with config and version if wanted.
        root: the folder with data sets; it may be missing.

    Raises:
        UserError: nothing is known by this name, or its files are damaged.
    """
    names = tfds.list_builders(with_community_datasets=False)  # The community's list lies on the network.
    if base_name(data) not in names:
        close = nearest(data, names)
        hint = f"Did you mean '{close}'? " if close else ""
        raise UserError(
            f"there is no data set '{data}'. {hint}Any of TensorFlow Datasets with 'image' and 'label', or 'features' "
            f"and 'target', will do ({', '.join(KNOWN)}, ...), or the path of a folder that holds a prepared one."
        )
    try:
        return tfds.builder(data, data_dir=root)
    except Exception as error:
        # Damaged files raise nearly anything here: AssertionError, RuntimeError, KeyError, protobuf's ParseError.
        folder = root / base_name(data)
        if folder.is_dir():
            raise damaged(folder, error) from error
        raise UserError(f"the data set '{data}' cannot be opened: {reason(error)}.") from error


def is_complete(builder: tfds.core.DatasetBuilder) -> bool:
    """Whether the files of a builder are on disk: TFDS writes this one last."""
    return (Path(builder.data_dir) / INFO).is_file()


def damaged(folder: Path, error: Exception) -> UserError:
    """The error for prepared data that cannot be read.

    Args:
        folder: the folder of the data set.
        error: what reading it raised.
    """
    return UserError(
        f"the prepared data in {folder} cannot be read: {reason(error)}. If its files are damaged or incomplete, "
        "restore them, or remove the folder and prepare the data set again (`highway data prepare NAME`)."
    )


def reason(error: Exception) -> str:
    """The beginning of a framework's error, without the names of its internals."""
    text = re.sub(r"\{\{.*?\}\}|\[Op:.*|\[\[.*", "", str(error).replace("\n", " ")).strip()
    return text[:200].rstrip(" .") or type(error).__name__


def in_folder(folder: Path) -> tfds.core.DatasetBuilder:
    """The builder of the data set that lies prepared in a folder.

    Args:
        folder: the folder of the version, such as ~/tensorflow_datasets/mnist/3.0.1.

    Raises:
        UserError: there is none, or its files are damaged.
    """
    if not (folder / INFO).is_file():
        raise UserError(
            f"there is no prepared data set in '{folder}': it holds no {INFO}. "
            "Name the folder of the version, such as ~/tensorflow_datasets/mnist/3.0.1."
        )
    try:
        return tfds.builder_from_directory(folder)
    except Exception as error:  # As above.
        raise damaged(folder, error) from error
