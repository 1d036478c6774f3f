"""Settings and fixtures shared by all tests."""

import os

# Before Keras is imported anywhere: the backend is read once.
os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def real_data():
    """A function that gives the folder with a prepared TFDS data set, or skips the test by name."""

    def folder(name: str) -> Path:
        root = os.environ.get("TFDS_DATA_DIR")
        if not root or not (Path(root) / name).is_dir():
            pytest.skip(f"the prepared data set '{name}' is not in TFDS_DATA_DIR")
        return Path(root)

    return folder
