"""A tiny model, and images that it distinguishes."""

import io

import numpy as np
import pytest
from PIL import Image

from tests import tiny_model


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The folder of a model with one version; read only."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    tiny_model.write(folder / "1")
    return folder


@pytest.fixture(scope="session")
def encoded():
    """A function from a number to a PNG file with a random image of random size."""

    def make(number):
        random = np.random.default_rng(number)
        buffer = io.BytesIO()
        pixels = random.integers(0, 256, (4 + number % 5, 3 + number % 7), np.uint8)
        Image.fromarray(pixels).save(buffer, "PNG")
        return buffer.getvalue()

    return make


@pytest.fixture
def folder(tmp_path, encoded):
    """A folder with thirty images in subfolders, created out of order."""
    root = tmp_path / "images"
    for number in reversed(range(30)):
        path = root / f"{number % 3}" / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encoded(number))
    return root
