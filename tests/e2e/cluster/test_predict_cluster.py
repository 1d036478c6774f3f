"""`highway predict --cluster`: kills of workers, nodes and drivers change nothing in the result."""

import io
import random
import re
import signal
import subprocess
import sys
import tarfile
import time
from contextlib import suppress

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.verbs.cli import main
from tests import table_model, tiny_model

pytestmark = pytest.mark.slow
COUNT = 6_000
ROWS = 60_000
ALONE = (sys.executable, "-m", "pipelines", "predict")
# Parts of at least 128 images, of which each takes a third of a second.
SLOWLY = """
import sys
from pipelines.inference import job, part_tasks
from pipelines.verbs.cli import main
from tests.cluster_tasks import predict_slowly
part_tasks.LEAST, job.predict_part = 128, predict_slowly
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def whole(place):
    """The file that a single undisturbed process writes."""
    out = place / "whole.parquet"
    subprocess.run([*ALONE, *words(out)], cwd=place, check=True, capture_output=True)
    return pq.read_table(out)


def words(out, *more):
    return ["tiny", "images", "more.tar.gz", "--out", str(out), "--explain", *more]


def test_a_folder_of_parts_equals_the_file_of_one_process(cluster, place, whole, tmp_path):
    out = tmp_path / "predictions"
    status, output = cluster.run([*ALONE, *words(out, "--cluster", cluster.address)], cwd=place)
    assert status == 0, output
    assert output.splitlines()[-1].startswith(f"{out}: 6,500 images; 4 unreadable, see the column error; ")
    assert pq.read_table(out).equals(whole)
    assert len([*out.iterdir()]) > 3
    assert {path.suffix for path in out.iterdir()} == {".parquet"}
    assert [*tmp_path.iterdir()] == [out]


def test_rows_of_a_table_equal_those_of_one_process(cluster, tmp_path):
    table_model.write(tmp_path / "houses" / "1", regression=True)
    rows = [{"rooms": number % 9, "age": number % 100, "city": ["Rome", None][number % 2]} for number in range(ROWS)]
    priced = [{**row, "price": 100 + 50 * row["rooms"] - row["age"]} for row in rows]
    pq.write_table(pa.Table.from_pylist(priced), tmp_path / "rows.parquet")
    output = assert_same(cluster, tmp_path, [str(tmp_path / "houses"), str(tmp_path / "rows.parquet"), "--explain"])
    assert re.search(f"all: {ROWS:,} rows; MAE [0-9.]+, R² 0[.]99", output)


def test_images_of_a_split_equal_those_of_one_process(cluster, place, mnist_5k, tmp_path):
    # Nodes get the images from the process that reads the data set.
    words = [str(place / "tiny"), "tfds:mnist_5k/train", "--data-dir", str(mnist_5k), "--explain"]
    assert "all: 4,000 images; " in assert_same(cluster, tmp_path, words)


def assert_same(cluster, folder, words):
    """Predicts in this process, and on the cluster as a folder of parts, whose rows must be equal; returns the output
    of the cluster."""
    assert main(["predict", *words, "--out", str(folder / "alone.parquet")]) == 0
    together = [*ALONE, *words, "--out", str(folder / "all"), "--cluster", cluster.address]
    status, output = cluster.run(together)
    assert status == 0, output
    assert "Traceback" not in output
    assert len([*(folder / "all").iterdir()]) > 2
    found, alone = (pq.read_table(folder / name) for name in ("all", "alone.parquet"))
    assert len(alone)
    assert found.equals(alone)
    return output


def test_kills_of_workers_nodes_and_drivers_change_nothing(cluster, place, whole, tmp_path):
    chance = random.Random(7)
    out, processes = tmp_path / "out.parquet", tmp_path / "processes"
    started = [sys.executable, "-c", SLOWLY, "predict", *words(out, "--cluster", cluster.address)]
    kills = ["worker", "node", "driver", "worker", "driver"]
    kept = []
    while True:
        processes.unlink(missing_ok=True)
        driver = cluster.start(started, cwd=place, stdout=subprocess.PIPE)
        while kills and driver.poll() is None:
            kind = kills.pop(0)
            wait_for(driver, processes.exists)
            if kind == "driver":
                # A slow machine opens the model for longer than the pause.
                wait_for(driver, lambda: rows(tmp_path) > sum(kept[-1:]))
            time.sleep(chance.uniform(0.1, 0.8))
            if kind == "worker":
                kill_worker(processes, chance)
            elif kind == "node":
                cluster.kill("b")
                cluster.add("b")
            else:
                driver.kill()
                driver.wait()
                kept.append(rows(tmp_path))
            processes.unlink(missing_ok=True)
        output, _ = driver.communicate(timeout=120)
        if driver.returncode != -signal.SIGKILL:
            break
        assert not out.exists()
    assert driver.returncode == 0, output
    assert (kills, len(kept)) == ([], 2)
    assert f"6,500 images ({kept[-1]:,} by earlier attempts); " in output
    assert pq.read_table(out).equals(whole)
    processes.unlink(missing_ok=True)
    assert [*tmp_path.iterdir()] == [out]


def rows(folder):
    """Returns the number of rows that are saved so far."""
    return sum(pq.read_metadata(part).num_rows for part in folder.glob(".out.parquet.parts/[0-9]*.parquet"))


def wait_for(driver, condition):
    """Waits while a driver runs."""
    while not condition():
        assert driver.poll() is None, driver.communicate()
        time.sleep(0.01)


def kill_worker(processes, chance):
    """Kills one of the processes that have begun a task; those that have ended in the meantime do not count."""
    alive = [int(process) for process in set(processes.read_text().split()) if psutil.pid_exists(int(process))]
    with suppress(ProcessLookupError):
        psutil.Process(chance.choice(alive)).kill()
