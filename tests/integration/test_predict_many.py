"""`highway predict --out` as a process: killed, interrupted, started twice; and on a real data set."""

import io
import os
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from tests import tiny_model

ROOT = Path(__file__).parents[2]
COUNT = 4_000
# Small parts, many per second.
PROGRAM = """
import sys
from pipelines.verbs.cli import main
from pipelines.inference import job
job.GROUP = 128
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def many(tmp_path_factory):
    """A folder with a model, and a tar file of many images, some of them unreadable."""
    root = tmp_path_factory.mktemp("many")
    tiny_model.write(root / "tiny" / "1")
    with tarfile.open(root / "pictures.tar", "w") as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            content = b"no picture" if number % 1000 == 7 else buffer.getvalue()
            member = tarfile.TarInfo(f"{number:05}.pgm")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture
def start(many):
    """A function that starts the job as a process."""
    running = []

    def run(out, *words):
        words = [sys.executable, "-c", PROGRAM, "predict", "tiny", *(words or ["pictures.tar"]), "--out", str(out)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            words, cwd=many, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        running.append(process)
        return process

    yield run
    for process in running:
        process.kill()
        process.communicate()


def parts(out):
    return sorted(out.with_name(f".{out.name}.parts").glob("[0-9]*.parquet"))


def wait_for_parts(process, out, count):
    while len(parts(out)) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.001)


def finished(process):
    said, complained = process.communicate(timeout=120)
    assert process.returncode == 0, complained
    return said


def test_killed_again_and_again_it_ends_as_if_it_had_not_been(start, tmp_path):
    whole, out = tmp_path / "whole.parquet", tmp_path / "out.parquet"
    assert finished(start(whole)).startswith(f"{whole}: 4,000 images; 4 unreadable")
    for count in (1, 8, 20):
        process = start(out)
        wait_for_parts(process, out, count)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not out.exists()
    kept = len(parts(out))
    assert kept >= 20
    said = finished(start(out))
    assert f"4,000 images ({128 * kept:,} by earlier attempts)" in said
    assert pq.read_table(out).equals(pq.read_table(whole))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "whole.parquet"]


def test_interrupted_it_says_how_to_go_on(start, tmp_path):
    out = tmp_path / "out.parquet"
    process = start(out)
    wait_for_parts(process, out, 2)
    process.send_signal(signal.SIGINT)
    _, complained = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "images are saved in" in complained
    assert "Traceback" not in complained
    assert "4,000 images (" in finished(start(out))


def test_two_at_once_do_not_write_the_same_file(start, tmp_path):
    out = tmp_path / "out.parquet"
    first = start(out)
    wait_for_parts(first, out, 1)
    # Otherwise it could finish before the second one has started.
    first.send_signal(signal.SIGSTOP)
    second = start(out)
    _, complained = second.communicate(timeout=60)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert f"another process is writing {out}" in complained
    finished(first)
    assert len(pq.read_table(out)) == COUNT


def test_a_split_of_a_data_set(start, tmp_path, real_data):
    real_data("mnist")
    out = tmp_path / "out.parquet"
    assert "10,000 images" in finished(start(out, "tfds:mnist/test"))
    found = pq.read_table(out)
    assert found["path"].to_pylist() == [f"tfds:mnist/test:{number}" for number in range(10_000)]
    assert found["error"].null_count == 10_000


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("tfds:mnist", "names no split"),
        ("tfds:mnist/validation", "has no validation examples. It has: train, test"),
    ],
)
def test_splits_that_are_none(start, tmp_path, real_data, word, told):
    real_data("mnist")
    process = start(tmp_path / "out.parquet", word)
    _, complained = process.communicate(timeout=120)
    assert process.returncode == 2
    assert told in complained
    assert [*tmp_path.iterdir()] == []
