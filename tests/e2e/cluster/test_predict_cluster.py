"""`highway predict --cluster`: kills of workers, nodes and drivers change nothing in the result."""

import io
import json
import random
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import psutil
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.inference import table_job
from tests import table_model, tiny_model

COUNT = 6_000
ALONE = (sys.executable, "-m", "pipelines", "predict")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a model, a folder of 6,000 images, three of them unreadable, and a tar file of 500."""
    root = tmp_path_factory.mktemp("place")
    tiny_model.write(root / "tiny" / "1")
    (root / "images").mkdir()
    with tarfile.open(root / "more.tar.gz", "w:gz", compresslevel=1) as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            content = b"not an image" if number % 2000 == 7 else buffer.getvalue()
            (root / "images" / f"{number:05}.pgm").write_bytes(content)
            if number < 500:
                member = tarfile.TarInfo(f"{number:05}.pgm")
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture(scope="module")
def whole(place):
    """What one process writes, undisturbed."""
    out = place / "whole.parquet"
    words = [*ALONE, str(place / "tiny"), "images", "more.tar.gz", "--out", str(out), "--explain"]
    subprocess.run(words, cwd=place, check=True, capture_output=True)
    return pq.read_table(out)
