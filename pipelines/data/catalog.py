"""The catalog of data sets: finds prepared ones and prepares missing ones atomically."""

import contextlib
import io
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

import tensorflow_datasets as tfds

from pipelines.core.errors import UserError, disk_is_full, reason
from pipelines.core.files import temporary_folder, user_cache
from pipelines.core.url import is_url
from pipelines.data import fama_french, mnist_5k  # noqa: F401, importing them registers them with TFDS
from pipelines.data.roots import INFO, OWN, base_name, is_writable, roots, unknown, unpinned

# For a data set that is not on disk, this would look into a bucket, which TFDS has disabled, and leave an empty folder
# among the temporary files.
tfds.core.DatasetInfo.initialize_from_bucket = lambda _: None

# Seconds that a server may take to respond. Without a network, TFDS itself retries for minutes.
PATIENCE = 5


def is_folder(data: str) -> bool:
    """Returns whether `data` is the path of a prepared data set, not a TFDS name ("cifar10", "name/config:1.0.0")."""
    return data.startswith(("/", ".", "~")) or ("/" in data and Path(data).is_dir())


def find(data: str, data_dir: Path | None) -> tfds.core.DatasetBuilder | None:
    """Finds the builder of a prepared data set.

    Args:
        data: TFDS name, optionally with config and version, the folder of a prepared data set, or the result of
            `pinned`.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Returns:
        A builder whose files are on disk, or None if the data set is known but not prepared.

    Raises:
        UserError: the name is unknown, the folder holds no data set, or its files are damaged.
    """
    if is_url(data):
        url, folder = unpinned(data)
        if folder is None or not (folder / INFO).is_file():
            raise UserError(
                f"{data} is not prepared on this machine. Prepare it with the same options, and name the folder that "
                f"is printed: highway data prepare {url}"
            )
        return open_folder(folder)
    if is_folder(data):
        return open_folder(Path(data).expanduser())
    builders = (builder(data, root) for root in roots(data, data_dir))
    return next((candidate for candidate in builders if is_complete(candidate)), None)


def builder(data: str, root: Path) -> tfds.core.DatasetBuilder:
    """Returns the builder for a TFDS name, prepared or not.

    Args:
        data: TFDS name, optionally with config and version.
        root: the folder of data sets; it may be missing.

    Raises:
        UserError: the name is unknown, or its files are damaged.
    """
    names = tfds.list_builders(with_community_datasets=False)  # The community's list would need the network.
    if base_name(data) not in names:
        raise unknown(data, names)
    try:
        return tfds.builder(data, data_dir=root)
    except Exception as error:
        # Damaged files raise almost anything here: AssertionError, RuntimeError, KeyError, protobuf's ParseError.
        folder = root / base_name(data)
        if folder.is_dir():
            raise damaged(folder, error) from error
        raise UserError(f"the data set '{data}' cannot be opened: {reason(error)}.") from error


def is_complete(builder: tfds.core.DatasetBuilder) -> bool:
    """Returns whether the files of a builder are on disk. TFDS writes the info file last."""
    return (Path(builder.data_dir) / INFO).is_file()


def damaged(folder: Path, error: Exception) -> UserError:
    """Builds the error for unreadable prepared data.

    Args:
        folder: the folder of the data set.
        error: the error raised by reading it.
    """
    return UserError(
        f"the prepared data in {folder} cannot be read: {reason(error)}. If its files are damaged or incomplete, "
        "restore them, or remove the folder and prepare the data set again (`highway data prepare NAME`)."
    )


def open_folder(folder: Path) -> tfds.core.DatasetBuilder:
    """Returns the builder of the prepared data set in a folder.

    Args:
        folder: the folder of the version, such as ~/tensorflow_datasets/mnist/3.0.1.

    Raises:
        UserError: the folder holds no data set, or its files are damaged.
    """
    if not (folder / INFO).is_file() and folder.is_relative_to(user_cache()):
        raise UserError(
            f"the prepared data in '{folder}' are no longer in the cache. Prepare your data again, with the same "
            "--image-size or --target: `highway data prepare PATH` writes unchanged data to the same folder."
        )
    if not (folder / INFO).is_file():
        raise UserError(
            f"there is no prepared data set in '{folder}': {INFO} is missing. "
            "Name the folder of the version, such as ~/tensorflow_datasets/mnist/3.0.1."
        )
    try:
        return tfds.builder_from_directory(folder)
    except Exception as error:  # as in `builder`
        raise damaged(folder, error) from error


def prepare(data: str, data_dir: Path | None) -> tfds.core.DatasetBuilder:
    """Downloads a data set if necessary and prepares it atomically.

    Several processes may prepare the same data set at once; the first to finish wins.

    Args:
        data: TFDS name, optionally with config and version.
        data_dir: the folder of data sets; None for TFDS_DATA_DIR or ~/tensorflow_datasets.

    Returns:
        A builder whose files are on disk.

    Raises:
        UserError: the data set cannot be downloaded, prepared or written; no files are left behind.

    Example:
        prepare("cifar10", Path("~/data").expanduser())
    """
    candidates = roots(data, data_dir)
    root = next((root for root in candidates if is_writable(root)), None)
    if root is None:
        raise _unavailable(data, candidates[0], "the folder is not writable")
    target = Path(builder(data, root).data_dir)
    if trouble := unreachable(builder(data, root).url_infos or ()):
        raise _unavailable(data, root, trouble)
    root.mkdir(parents=True, exist_ok=True)
    with temporary_folder(root, ".preparing-") as aside:
        unfinished = builder(data, aside)
        settings = tfds.download.DownloadConfig(try_download_gcs=False, manual_dir=root / "downloads" / "manual")
        try:
            with silence() if base_name(data) in OWN else contextlib.nullcontext():
                unfinished.download_and_prepare(download_dir=aside / "downloads", download_config=settings)
        except Exception as error:
            # The code of an arbitrary TFDS data set runs here, over the network, and may raise anything.
            if disk_is_full(error):
                raise
            raise _unavailable(data, root, reason(error)) from error
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):  # Another process was faster, or the target is blocked: see below.
            Path(unfinished.data_dir).rename(target)
    done = builder(data, root)
    if not is_complete(done):
        raise UserError(f"{target} exists but holds no complete data set. Remove it and repeat the command.")
    return done


def unreachable(urls: Iterable[str]) -> str | None:
    """Checks whether the servers of a download respond.

    Args:
        urls: the files to download.

    Returns:
        The reason why no server has responded after a few seconds; None if one has, or if there are no URLs.
    """
    trouble = None
    servers = {"{0.scheme}://{0.netloc}".format(urllib.parse.urlsplit(url)) for url in urls if url.startswith("http")}
    for server in sorted(servers)[:3]:
        try:
            urllib.request.urlopen(urllib.request.Request(server, method="HEAD"), timeout=PATIENCE).close()
        except urllib.error.HTTPError:
            return None  # An error response is a response.
        except OSError as error:
            trouble = f"no network, {server} does not respond ({getattr(error, 'reason', error)})"
        else:
            return None
    return trouble


def _unavailable(data: str, root: Path, trouble: str) -> UserError:
    failed = f"the data set '{data}' is not in {root} and cannot be prepared there: {trouble}. "
    if base_name(data) in OWN:
        return UserError(f"{failed}Name a writable folder with --data-dir or TFDS_DATA_DIR.")
    return UserError(
        f"{failed}Use {mnist_5k.NAME} (real digits, no download); or run `highway data prepare {data}` on a machine "
        "with a network and copy the folder here; or name the folder that holds it with --data-dir or TFDS_DATA_DIR."
    )


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keeps TFDS from announcing a download and showing its progress if nothing is downloaded."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
