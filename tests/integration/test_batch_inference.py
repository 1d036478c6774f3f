"""`highway predict --out` as a process: killed, interrupted, started twice, and on a published data set."""

import io
import os
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

from pipelines.core import environment
from tests import tiny_model

ROOT = Path(__file__).parents[2]
COUNT = 4_000
# Small parts, of which threads write many per second; on a busy machine, processes would take over.
PROGRAM = """
import sys
from pipelines.verbs.cli import main
from pipelines.inference import job
job.GROUP, job.SOON = 128, float("inf")
sys.exit(main(sys.argv[1:]))
"""
# Processes take over at once, and predict parts of 128 images, each after a pause.
IN_PROCESSES = """
import sys
from pipelines.inference import job, part_tasks
from pipelines.verbs.cli import main
from tests.cluster_tasks import predict_slowly
job.SOON, job.START = 0.0, -float("inf")
part_tasks.LEAST, job.predict_part = 128, predict_slowly
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a model and a tar file of 4,000 images, four of them unreadable."""
    root = tmp_path_factory.mktemp("batch")
    tiny_model.write(root / "tiny" / "1")
    with tarfile.open(root / "images.tar", "w") as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            content = b"not an image" if number % 1000 == 7 else buffer.getvalue()
            member = tarfile.TarInfo(f"{number:05}.pgm")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return root


@pytest.fixture
def start(folder):
    """A function that starts a job as a process."""
    running = []

    def run(out, *words, program=PROGRAM):
        words = [sys.executable, "-c", program, "predict", "tiny", *(words or ["images.tar"]), "--out", str(out)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        process = subprocess.Popen(
            words, cwd=folder, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
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
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return output


def test_a_job_killed_three_times_ends_as_if_uninterrupted(start, tmp_path):
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
    output = finished(start(out))
    assert f"4,000 images ({128 * kept:,} by earlier attempts); 4 unreadable" in output
    assert pq.read_table(out).equals(pq.read_table(whole))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.parquet", "whole.parquet"]


def test_an_interrupted_job_keeps_its_parts_and_resumes(start, tmp_path):
    out = tmp_path / "out.parquet"
    process = start(out)
    wait_for_parts(process, out, 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "images are saved in" in errors
    assert "Traceback" not in errors
    assert "4,000 images (" in finished(start(out))


@pytest.mark.skipif(environment.cores() < 2, reason="one core has no use for processes")
def test_processes_that_are_killed_change_nothing_in_the_result(start, folder, tmp_path):
    with tarfile.open(folder / "images.tar") as archive:
        archive.extractall(tmp_path / "images", filter="data")
    threads, out = tmp_path / "threads.parquet", tmp_path / "out.parquet"
    finished(start(threads, str(tmp_path / "images")))
    process = start(out, str(tmp_path / "images"), program=IN_PROCESSES)
    wait_for_parts(process, out, 4)
    workers = [
        one for one in psutil.Process(process.pid).children() if any("local_executor" in w for w in one.cmdline())
    ]
    assert len(workers) == environment.cores()
    workers[0].kill()
    wait_for_parts(process, out, 8)
    process.kill()
    process.communicate()
    # They end with the command.
    assert psutil.wait_procs(workers, timeout=60)[1] == []
    again = start(out, str(tmp_path / "images"), program=IN_PROCESSES)
    assert "4,000 images (" in finished(again)
    assert pq.read_table(out).equals(pq.read_table(threads))
    assert sorted(path.name for path in tmp_path.glob("*.parquet*")) == ["out.parquet", "threads.parquet"]


def test_a_second_job_on_the_same_file_is_refused(start, tmp_path):
    out = tmp_path / "out.parquet"
    first = start(out)
    wait_for_parts(first, out, 1)
    # Otherwise the first could finish before the second has started.
    first.send_signal(signal.SIGSTOP)
    second = start(out)
    _, errors = second.communicate(timeout=60)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert f"another process is writing {out}" in errors
    finished(first)
    assert len(pq.read_table(out)) == COUNT


def test_a_split_of_a_data_set_is_classified(start, tmp_path, real_data):
    real_data("mnist")
    out = tmp_path / "out.parquet"
    assert "10,000 images" in finished(start(out, "tfds:mnist/test"))
    found = pq.read_table(out)
    assert found["path"].to_pylist() == [f"tfds:mnist/test:{number}" for number in range(10_000)]
    assert found["error"].null_count == 10_000


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tfds:mnist", "names no split"),
        ("tfds:mnist/validation", "has no validation examples. It has: train, test"),
    ],
)
def test_missing_and_unknown_splits_are_refused(start, tmp_path, real_data, word, message):
    real_data("mnist")
    process = start(tmp_path / "out.parquet", word)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 2
    assert message in errors
    assert [*tmp_path.iterdir()] == []
