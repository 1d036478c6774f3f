"""`highway reproduce --cluster`: the runs of a study as tasks equal those of processes of one machine."""

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from pipelines import studies
from tests.finished_study import BUDGET, assert_complete, prepare
from tests.killed_run import NEWEST

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
NAME, ARMS = "bias", tuple(f"10-layers-bias-{bias}" for bias in (6, 4, 2))


@pytest.fixture(scope="module")
def toy(shared):
    return shared("studied", prepare)


def test_a_study_on_a_cluster_survives_the_death_of_a_node(cluster, toy, tmp_path):
    words = [sys.executable, "-m", "pipelines", "reproduce", NAME, "--budget", BUDGET, "--arms", *ARMS, "--to"]
    options = {"cwd": tmp_path, "environment": {"PYTHONPATH": str(ROOT), "TFDS_DATA_DIR": str(toy)}}
    alone, together = tmp_path / "alone", tmp_path / "together"
    # On one core, as the tasks of the cluster.
    core = min(os.sched_getaffinity(0))
    status, output = cluster.run([*words, "alone"], preexec_fn=lambda: os.sched_setaffinity(0, {core}), **options)
    assert status == 0, output

    study = cluster.start([*words, "together", "--cluster", cluster.address], stdout=subprocess.PIPE, **options)
    wait_for(lambda: list(together.glob("runs/*/config.json")), study)
    cluster.kill("a")
    cluster.add("a")
    output, _ = study.communicate(timeout=300)
    assert study.returncode == 0, output
    assert "Traceback" not in output
    assert_complete(together, studies.get(NAME), ARMS)
    for arm in ARMS:
        run = f"runs/{arm}-seed-0"
        assert output.count(f"{arm}-seed-0: ") == 1
        with np.load(alone / run / NEWEST) as one, np.load(together / run / NEWEST) as other:
            assert one.files == other.files
            for name in {*one.files} - {"head"}:
                np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def wait_for(condition, process):
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
