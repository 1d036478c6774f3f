"""Settings and fixtures shared by all tests."""

import os

# Before Keras is imported anywhere: the backend is read once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
# Tests compile many programs and run each of them a few times. XLA's own passes stay as they are; LLVM's, which take
# most of the time, only make the machine code faster. So does the emission of fused loops through MLIR. The quick
# benchmarks and the demo compile as users do.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true --xla_cpu_use_fusion_emitters=false",
)

import contextlib
import ctypes
import fcntl
import gc
import ipaddress
import itertools
import shutil
import signal
import socket
import sys
import tempfile
from pathlib import Path

import hypothesis
import psutil
import pytest

if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    # JAX compiles a program once for all workers of pytest-xdist and all processes that tests start; on Intel's
    # processors, where XLA rejects its own entries (jax-ml/jax issue 38445), every time, as without a cache.
    compiled = tempfile.TemporaryDirectory(prefix="highway-jax-")
    os.environ |= {"JAX_COMPILATION_CACHE_DIR": compiled.name, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}

# While test modules import millions of permanent objects, searching them for cycles takes a third of the time.
gc.disable()

# Background jobs ignore SIGINT, and so would the processes whose reaction to it is tested.
signal.signal(signal.SIGINT, signal.default_int_handler)


# On a busy machine the time of an example means nothing.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def real_data():
    """A function that returns the folder of a prepared TFDS data set, or skips the test."""

    def folder(name: str) -> Path:
        root = os.environ.get("TFDS_DATA_DIR")
        if not root or not (Path(root) / name).is_dir():
            pytest.skip(f"the prepared data set '{name}' is not in TFDS_DATA_DIR")
        return Path(root)

    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """Fails a test that connects to the network, on every machine alike."""
    connect = socket.socket.connect

    def is_local(host):
        return host == "localhost" or ((host[:1].isdigit() or ":" in host) and ipaddress.ip_address(host).is_loopback)

    def local_only(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            raise OSError(f"tests have no network; something connects to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(scope="session")
def shared(tmp_path_factory, worker_id):
    """A function that makes a folder once for all workers of pytest-xdist; tests only read it.

    `shared(name, make)` calls `make(folder)` if there is no folder of that name yet, and returns the folder.
    """
    here = tmp_path_factory.getbasetemp()
    root = (here if worker_id == "master" else here.parent) / "shared"
    root.mkdir(exist_ok=True)

    def folder(name, make):
        path = root / name
        with (root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not path.exists():
                aside = root / f"{name}.aside"
                shutil.rmtree(aside, ignore_errors=True)
                aside.mkdir()
                make(aside)
                aside.rename(path)
        return path

    return folder


@pytest.fixture(scope="session")
def mnist_5k(shared):
    """A folder of data sets with mnist_5k alone; not to be changed."""
    from pipelines.data.catalog import prepare

    return shared("mnist_5k", lambda folder: prepare("mnist_5k", folder))


@pytest.fixture(scope="session")
def fama_french(shared):
    """A folder of data sets with fama_french alone; not to be changed."""
    from pipelines.data.catalog import prepare

    return shared("fama_french", lambda folder: prepare("fama_french", folder))


@pytest.fixture(scope="session")
def repository(shared):
    """A model repository with version 1 of `digits`, a classifier of digits with gates; not to be changed."""
    from tests.endpoint import make_repository

    return shared("repository", make_repository) / "models"


@pytest.fixture(scope="session")
def cluster():
    """A Ray cluster: a head, and the nodes "a" and "b" with one core each. Tests that kill a node add it again."""
    from tests.ray_cluster import LocalCluster

    with LocalCluster(["a", "b"]) as started:
        yield started


_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def s3_server():
    """A local S3 server."""
    from tests.s3_server import S3Server

    server = S3Server()
    yield server
    server.stop()


@pytest.fixture(scope="session")
def gs_server():
    """A local server of Google Cloud Storage."""
    from tests.gs_server import GsServer

    server = GsServer()
    yield server
    server.stop()


@pytest.fixture
def bucket(request, monkeypatch):
    """A new bucket of a local server, which this process and those that it starts find by their environment.

    Its parameter is `s3`, the default, or `gs`.
    """
    kind = getattr(request, "param", "s3")
    server = request.getfixturevalue(f"{kind}_server")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)
    # gcsfs reads them when it is imported.
    if kind == "s3":
        from s3fs import S3FileSystem as FileSystem

        from tests.s3_server import Bucket as Made
    else:
        from gcsfs import GCSFileSystem as FileSystem

        from tests.gs_server import GsBucket as Made
    made = Made(server, f"test-{next(_numbers)}")
    yield made
    if kind == "s3":
        # A test may have stopped it.
        server.stop()
        server.start()
    made.close()
    # They keep connections and listings.
    FileSystem.clear_instance_cache()


def pytest_collection_modifyitems(items):
    """Puts slow tests at the start of each worker's share: at the end, one of them would keep a single worker busy.

    Those of a module stay together, because workers would wait for each other's fixtures.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    slow = [item for item in items if item.get_closest_marker("slow")]
    others = [item for item in items if not item.get_closest_marker("slow")]
    shares = [[] for _ in range(workers)]
    for _, module in itertools.groupby(slow, key=lambda item: item.path):
        min(shares, key=len).extend(module)
    ordered = []
    for number, first in enumerate(shares, 1):
        # pytest-xdist cuts the list into equal parts.
        count = max(0, len(items) * number // workers - len(ordered) - len(first))
        ordered += [*first, *others[:count]]
        others = others[count:]
    items[:] = ordered + others


def pytest_collection_finish():
    """Exempts what test modules import from garbage collection, which Keras triggers in every `clear_session`."""
    gc.freeze()
    gc.enable()


# Memory when compiled functions were last freed, in bytes; at first about that of TensorFlow's imports.
freed_at = {"memory": 1 << 29}


@pytest.fixture(autouse=True, scope="module")
def _free_memory():
    """Frees models and compiled functions between modules each time memory has grown by 0.5 GB.

    Not after every module: it takes 1 to 2 s, and JAX then compiles the simplest operations again.
    """
    yield
    process = psutil.Process()
    if process.memory_info().rss < freed_at["memory"] + (1 << 29):
        return
    if "keras" in sys.modules:
        sys.modules["keras"].utils.clear_session()
    gc.collect()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    freed_at["memory"] = process.memory_info().rss
