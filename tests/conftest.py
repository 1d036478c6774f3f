"""Settings and fixtures shared by all tests."""

import os

# Before Keras is imported anywhere: the backend is read once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import contextlib
import ctypes
import fcntl
import gc
import ipaddress
import shutil
import signal
import socket
import sys
from pathlib import Path

import hypothesis
import pytest

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
def repository(shared):
    """A model repository with version 1 of `digits`, a classifier of digits with gates; not to be changed."""
    from tests.endpoint import make_repository

    return shared("repository", make_repository) / "models"


@pytest.fixture(autouse=True, scope="module")
def _free_memory():
    """Frees compiled functions and nets between modules."""
    yield
    gc.collect()
    if "jax" in sys.modules:
        sys.modules["jax"].clear_caches()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
