"""`--cluster` with URLs only: nodes share a bucket, from which they predict, and in which runs and searches go on."""

import io
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pipelines.core import run as runs
from pipelines.tuning.driver import drive, opened
from pipelines.tuning.search_plan import SEARCH_FILE
from pipelines.tuning.search_state import read
from pipelines.verbs.cli import main
from pipelines.verbs.tune import parse_tune
from tests import tiny_model
from tests.executors import Shuffled
from tests.killed_run import NEWEST, differences

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
COUNT, MORE = 120, 40
BUCKET = "s3://shared"
TRIALS = 2
NET = ["--data", "mnist_5k", "--subset.train", "200", "--model.depth", "3", "--model.width", "8"]
NET += ["--batch-size", "50", "--precision", "float32"]
# Nodes upload every five seconds; each run is longer. With dropout, so that there is state besides weights.
RUN = ["mnist_dense_10", *NET, "--model.dropout", "0.2", "--epochs", "150"]
SEARCH = ["mnist_dense_10", *NET, "--epochs", "150", "--trials", str(TRIALS), "--search.learning-rate", "0.01", "1.0"]
# Parts of at least 16 images, of which each takes half a second.
SLOWLY = """
import sys
from pipelines.inference import job, net_inputs, part_tasks
from pipelines.verbs.cli import main
from tests.cluster_tasks import predict_late
net_inputs.BATCH, part_tasks.LEAST, job.predict_part = 16, 16, predict_late
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def place(tmp_path):
    """A folder with a model, a folder of images, one of them unreadable, and a tar file of some of them."""
    root = tmp_path / "place"
    tiny_model.write(root / "tiny" / "1")
    (root / "images").mkdir()
    with tarfile.open(root / "more.tar", "w") as archive:
        for number in range(COUNT):
            buffer = io.BytesIO()
            pixels = np.random.default_rng(number).integers(0, 256, (4, 3), np.uint8)
            Image.fromarray(pixels).save(buffer, "PPM")
            path = root / "images" / f"{number:05}.pgm"
            path.write_bytes(b"not an image" if number == 7 else buffer.getvalue())
            if number < MORE:
                archive.add(path, path.name)
    return root


def test_nodes_share_nothing_but_a_bucket(cluster, store, place, tmp_path, monkeypatch):
    store("store.mkdir('shared')")
    store(f"store.put({str(place)!r} + '/', 'shared', recursive=True)")
    words = ["tiny", "images", "more.tar", "--out", "out.parquet", "--explain"]
    monkeypatch.chdir(place)
    monkeypatch.setattr("pipelines.inference.net_inputs.BATCH", 16)
    assert main(["predict", *words]) == 0
    whole = pq.read_table("out.parquet").to_pydict()
    place.rename(tmp_path / "elsewhere")

    by_url = [word if word.startswith("--") else f"{BUCKET}/{word}" for word in words]
    process = cluster.start(
        [sys.executable, "-c", SLOWLY, "predict", *by_url, "--cluster", cluster.address], stdout=subprocess.PIPE
    )
    while "/0" not in store("store.find('shared/.out.parquet.parts')"):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)
    cluster.kill("b")
    cluster.add("b")
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output
    assert f"{BUCKET}/out.parquet: {COUNT + MORE} images; 2 unreadable" in output
    assert store("[name for name in store.find('shared') if 'out.parquet' in name]") == "['shared/out.parquet']"

    store(f"store.get('shared/out.parquet', {str(tmp_path / 'out.parquet')!r})")
    found = pq.read_table(tmp_path / "out.parquet").to_pydict()
    assert found.pop("path") == [f"{BUCKET}/{path}" for path in whole.pop("path")]
    assert [bool(error) for error in found.pop("error")] == [bool(error) for error in whole.pop("error")]
    assert found == whole


@pytest.fixture
def start(cluster, mnist_5k, tmp_path):
    """A function that starts a command on the cluster, with files of a folder of its own."""

    def run(*words, backend="jax"):
        return cluster.start(
            [*(sys.executable, "-m", "pipelines", *words), "--cluster", cluster.address, "--data-dir", str(mnist_5k)],
            {"KERAS_BACKEND": backend, "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )

    return run


def ended(process):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert "Traceback" not in output
    return output


def wait(process, until):
    while not until():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)


def test_a_run_in_a_bucket_goes_on_where_the_death_of_a_node_left_it(cluster, store, start, tmp_path):
    ended(start("train", *RUN, "--run", "whole", "--hosts", "2"))

    store("store.mkdir('runs')")
    process = start("train", *RUN, "--run", "s3://runs/x", "--checkpoint-steps", "1", "--hosts", "2")
    wait(process, lambda: store(f"store.exists('runs/x/{NEWEST}')") == "True")
    cluster.kill("b")
    cluster.add("b")
    output = ended(process)
    assert output.count("was lost after step ") == 1
    assert "run directory s3://runs/x, report s3://runs/x/report.md\n" in output
    store(f"store.get('runs/x', {str(tmp_path / 'x')!r}, recursive=True)")
    assert differences(tmp_path / "whole", tmp_path / "x") == []
    first, second = runs.open_run(tmp_path / "x").record.starts
    assert (first.processes, first.step, second.processes) == (2, 0, 2)
    assert second.step > 0
    # Neither the name of an owner nor output is left.
    assert store("store.ls('runs')") == "['runs/x']"


def test_a_search_in_a_bucket_goes_on_where_the_death_of_a_node_left_it(cluster, store, start, mnist_5k, tmp_path):
    store("store.mkdir('searches')")
    process = start("tune", *SEARCH, "--to", "s3://searches/x", backend="tensorflow")
    # Trials remove it at their end.
    wait(process, lambda: f"/{NEWEST}" in store("store.find('searches/x/trials')"))
    cluster.kill("b")
    cluster.add("b")
    # Undisturbed, in this process; both searches go on at the same time.
    alone = parse_tune([*SEARCH, "--to", str(tmp_path / "alone")]).search
    SEARCH_FILE.keep(alone.plan, alone.folder)
    drive(opened(alone.plan, alone.folder, mnist_5k), Shuffled(capacity=1), data_dir=mnist_5k)

    output = ended(process)
    assert "has lost its process or node and starts again" in output
    assert f"{TRIALS} of {TRIALS} trials, best" in output
    store(f"store.get('searches/x', {str(tmp_path / 'x')!r}, recursive=True)")
    assert scores(tmp_path / "x") == scores(tmp_path / "alone")
    assert store("store.ls('searches')") == "['searches/x']"


def scores(folder):
    return [(trial.number, trial.values, trial.score) for trial in read(folder).trials]
