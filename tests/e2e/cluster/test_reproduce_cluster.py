"""`highway reproduce --cluster`: the runs of a study as tasks equal those of processes of one machine."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from pipelines import studies
from tests.finished_study import BUDGET, assert_complete, prepare
from tests.killed_run import NEWEST

pytestmark = pytest.mark.slow
NAME, ARMS = "bias", tuple(f"10-layers-bias-{bias}" for bias in (6, 4, 2))
WORDS = (sys.executable, "-m", "pipelines", "reproduce", NAME, "--budget", BUDGET, "--arms", *ARMS)


@pytest.fixture(scope="module")
def toy(shared):
    return shared("studied", prepare)


@pytest.fixture(scope="module")
def alone(cluster, toy, tmp_path_factory):
    """The folder of the study, run by this machine. The others are no siblings of it, and do not copy its runs."""
    folder = tmp_path_factory.mktemp("alone") / NAME
    # On one core, as the tasks of the cluster.
    core = min(os.sched_getaffinity(0))
    status, output = cluster.run(words(toy, "--to", str(folder)), preexec_fn=lambda: os.sched_setaffinity(0, {core}))
    assert status == 0, output
    return folder


def words(toy, *more):
    """The command; nodes do not have this machine's TFDS_DATA_DIR."""
    return [*WORDS, "--data-dir", str(toy), *more]


def test_a_study_on_a_cluster_survives_the_death_of_its_driver_a_worker_and_a_node(cluster, toy, alone, tmp_path):
    together = words(toy, "--to", "together", "--cluster", cluster.address)
    study = cluster.start(together, stdout=subprocess.PIPE, cwd=tmp_path)
    wait_for(lambda: list(tmp_path.glob("together/runs/*/config.json")), study)
    study.kill()
    study.communicate()
    while cluster.tasks():
        time.sleep(0.05)

    study = cluster.start(together, stdout=subprocess.PIPE, cwd=tmp_path)
    wait_for(cluster.tasks, study)
    before = cluster.tasks()
    os.kill(before[0], signal.SIGKILL)
    wait_for(lambda: set(cluster.tasks()) - set(before), study)
    cluster.kill("a")
    cluster.add("a")
    output, _ = study.communicate(timeout=300)
    assert study.returncode == 0, output
    assert_equal(tmp_path / "together", alone, output)


def test_nodes_that_share_only_a_bucket_run_a_study(cluster, store, toy, alone, tmp_path):
    store("store.mkdir('studies')")
    url = f"s3://studies/{NAME}"
    study = cluster.start(words(toy, "--to", url, "--cluster", cluster.address), stdout=subprocess.PIPE)
    wait_for(lambda: "/run.json" in store(f"store.find('{url}/runs')"), study)
    cluster.kill("b")
    cluster.add("b")
    output, _ = study.communicate(timeout=300)
    assert study.returncode == 0, output
    assert f"tables and figures {url}/README.md" in output
    store(f"store.get('{url}', {str(tmp_path / NAME)!r}, recursive=True)")
    assert_equal(tmp_path / NAME, alone, output)


def assert_equal(together, alone, output):
    assert "Traceback" not in output
    assert "trained already" not in output
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
