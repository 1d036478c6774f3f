"""Prepares a data set that is missing: by TensorFlow Datasets, complete or not at all."""

import contextlib
import io
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable
from pathlib import Path

import tensorflow_datasets as tfds

from pipelines.data.folders import OWN, base_name, builder, is_complete, is_writable, reason, roots
from pipelines.data.mnist_5k import NAME as MNIST_5K
from pipelines.errors import UserError

# Seconds for a server to answer at all. Without a network, TFDS itself tries again for 200 s before it gives up.
PATIENCE = 5


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
        f"{failed}Choices: take {MNIST_5K}, real digits that need no download; "
        f"run `highway data prepare {data}` on a machine with a network and bring the folder here; "
        "or name the folder that holds it by --data-dir or TFDS_DATA_DIR."
    )


@contextlib.contextmanager
def _silence():  # type: ignore[no-untyped-def]
    # TFDS announces a download, and shows its progress, even where nothing is downloaded.
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        yield
