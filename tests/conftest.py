"""Settings and fixtures shared by all tests."""

import os

# Before Keras is imported anywhere: the backend is read once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "2")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

import fcntl
import ipaddress
import signal
import socket
from pathlib import Path

import hypothesis
import pytest

# Where tests run in the background this may be ignored, by their processes too, some of which are tested for it.
signal.signal(signal.SIGINT, signal.default_int_handler)


# How long an example takes is no finding on a busy machine.
hypothesis.settings.register_profile("untimed", deadline=None)
hypothesis.settings.load_profile("untimed")


@pytest.fixture(scope="session")
def real_data():
    """A function that gives the folder with a prepared TFDS data set, or skips the test by name."""

    def folder(name: str) -> Path:
        root = os.environ.get("TFDS_DATA_DIR")
        if not root or not (Path(root) / name).is_dir():
            pytest.skip(f"the prepared data set '{name}' is not in TFDS_DATA_DIR")
        return Path(root)

    return folder


@pytest.fixture(autouse=True)
def _no_network(monkeypatch):
    """A test that reaches for the network fails at once, on every machine alike."""
    connect = socket.socket.connect

    def is_local(host):
        return host == "localhost" or ((host[:1].isdigit() or ":" in host) and ipaddress.ip_address(host).is_loopback)

    def local_only(self, address):
        if self.family in (socket.AF_INET, socket.AF_INET6) and not is_local(address[0]):
            raise OSError(f"tests have no network; something connects to {address}")
        return connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)


@pytest.fixture(scope="session")
def repository(tmp_path_factory, worker_id):
    """A model repository with version 1 of `digits`, which reads digits and tells its gates; not to be changed."""
    from tests.endpoint import make_repository

    here = tmp_path_factory.getbasetemp()
    # Made once for all workers of pytest-xdist.
    root = (here if worker_id == "master" else here.parent) / "repository"
    with (root.parent / "repository.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return root / "models" if (root / "models").is_dir() else make_repository(root)
