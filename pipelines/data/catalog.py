"""Data sets on disk: finds those that are prepared, and prepares one that is missing, complete or not at all."""

import contextlib
import io
import os
import re
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import tensorflow_datasets as tfds

from pipelines.core.errors import UserError, nearest
from pipelines.core.files import user_cache
from pipelines.data import fama_french, mnist_5k

# Made from what installed packages ship: no download, and TFDS knows them by our import alone.
OWN = (mnist_5k.NAME, fama_french.NAME)
KNOWN = (*OWN, "mnist", "fashion_mnist", "cifar10", "cifar100")
INFO = "dataset_info.json"
# Seconds for a server to answer at all. Without a network, TFDS itself tries again for 200 s before it gives up.
PATIENCE = 5


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


def prepared(data: str, data_dir: Path | None) -> tfds.core.DatasetBuilder:
    """Downloads a data set (our own need no download) and prepares it in a folder aside, then moves that in place.

    Processes that prepare the same data at once do not disturb each other: the first to be ready wins.

    Args:
        data: TFDS name, with config and version if wanted.
        data_dir: the folder with data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Returns:
        A builder whose files are on disk.

    Raises:
        UserError: it cannot be downloaded, prepared or written; nothing is left behind.

    Example:
        prepared("cifar10", Path("~/data").expanduser())
    """
    candidates = roots(data, data_dir)
    root = next((root for root in candidates if is_writable(root)), None)
    if root is None:
        raise _unavailable(data, candidates[0], "the folder cannot be written to")
    target = Path(builder(data, root).data_dir)
    if trouble := unreachable(builder(data, root).url_infos or ()):
        raise _unavailable(data, root, trouble)
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root, prefix=".preparing-") as aside:
        unfinished = builder(data, Path(aside))
        settings = tfds.download.DownloadConfig(try_download_gcs=False, manual_dir=root / "downloads" / "manual")
        try:
            with _silence() if base_name(data) in OWN else contextlib.nullcontext():
                unfinished.download_and_prepare(download_dir=Path(aside) / "downloads", download_config=settings)
        except Exception as error:
            # The code of any data set of TFDS runs here, over the network: there is no list of what it may raise.
            raise _unavailable(data, root, reason(error)) from error
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # Somebody else was faster, or something is in the way: see below.
            Path(unfinished.data_dir).rename(target)
    done = builder(data, root)
    if not is_complete(done):
        raise UserError(f"{target} is in the way: it holds no complete data set. Remove it and repeat.")
    return done


def unreachable(urls: Iterable[str]) -> str | None:
    """Asks the servers of a download whether they are there.

    Args:
        urls: what is to be downloaded.

    Returns:
        Why no server answers, after a few seconds; None if one does, or if there is none to ask.
    """
    trouble = None
    servers = {"{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(url)) for url in urls if url.startswith("http")}
    for server in sorted(servers)[:3]:
        try:
            urllib.request.urlopen(urllib.request.Request(server, method="HEAD"), timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            return None  # Not a friendly answer, but an answer.
        except OSError as error:
            trouble = f"no network, {server} does not answer ({getattr(error, 'reason', error)})"
        else:
            return None
    return trouble


def _unavailable(data: str, root: Path, trouble: str) -> UserError:
    failed = f"the data set '{data}' is not in {root} and cannot be prepared there: {trouble}. "
    if base_name(data) in OWN:
        return UserError(f"{failed}Name a folder that can be written to by --data-dir or TFDS_DATA_DIR.")
    return UserError(
        f"{failed}Choices: take {mnist_5k.NAME}, real digits that need no download; "
        f"run `highway data prepare {data}` on a machine with a network and bring the folder here; "
        "or name the folder that holds it by --data-dir or TFDS_DATA_DIR."
    )


@contextlib.contextmanager
def _silence():  # type: ignore[no-untyped-def]
    # TFDS announces a download, and shows its progress, even where nothing is downloaded.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
