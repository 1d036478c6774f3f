"""`highway reproduce --cluster`: the runs of a study as tasks equal those of processes of one machine."""

import csv
import os
import re
import signal
import sys
import time
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

from pipelines import studies
from tests.finished_study import BUDGET, assert_complete, prepare
from tests.killed_run import NEWEST

pytestmark = pytest.mark.slow
NAME, ARMS = "bias", tuple(f"10-layers-bias-{bias}" for bias in (6, 4, 2))
WORDS = (sys.executable, "-m", "pipelines", "reproduce", NAME, "--budget", BUDGET, "--arms", *ARMS)
LOSS = re.compile(r"^(\S+) has lost its process or node and starts again: ", re.MULTILINE)


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


class Study:
    """A process of the command, with its output in a file.

    Args:
        log: the file.
        words: the command.
        options: of `LocalCluster.start`.
    """

    def __init__(self, cluster, log, words, **options):
        self._log = log
        with log.open("w") as file:
            self._process = cluster.start(words, stdout=file, **options)

    @property
    def output(self):
        return self._log.read_text()

    @property
    def losses(self):
        """Names of the runs that have lost their process or node, one for each loss."""
        return LOSS.findall(self.output)

    def wait_for(self, condition):
        while not condition():
            assert self._process.poll() is None, self.output
            time.sleep(0.05)

    def kill(self):
        self._process.kill()
        self._process.wait()

    def end(self):
        """Waits for the end of the command and returns its output."""
        assert self._process.wait(timeout=300) == 0, self.output
        return self.output


def test_a_study_on_a_cluster_survives_the_death_of_its_driver_a_worker_and_a_node(cluster, toy, alone, tmp_path):
    folder, together = tmp_path / "together", words(toy, "--to", "together", "--cluster", cluster.address)
    study = Study(cluster, tmp_path / "killed.log", together, cwd=tmp_path)
    study.wait_for(lambda: [*folder.glob("runs/*/config.json")])
    study.kill()
    while cluster.tasks():
        time.sleep(0.05)

    study = Study(cluster, tmp_path / "resumed.log", together, cwd=tmp_path)
    study.wait_for(lambda: works_on_both_nodes(cluster))
    os.kill(cluster.tasks()[0], signal.SIGKILL)
    study.wait_for(lambda: study.losses)
    study.wait_for(lambda: works_on_both_nodes(cluster))
    before = len(study.losses)
    cluster.kill("a")
    cluster.add("a")
    study.wait_for(lambda: len(study.losses) > before)
    assert_equal(folder, alone, study.end())


def test_nodes_that_share_only_a_bucket_run_a_study(cluster, store, toy, alone, tmp_path):
    store("store.mkdir('studies')")
    url = f"s3://studies/{NAME}"
    study = Study(cluster, tmp_path / "log", words(toy, "--to", url, "--cluster", cluster.address))
    study.wait_for(lambda: "/run.json" in store(f"store.find('{url}/runs')") and works_on_both_nodes(cluster))
    assert study.losses == []
    cluster.kill("b")
    cluster.add("b")
    study.wait_for(lambda: study.losses)
    output = study.end()
    assert f"tables and figures {url}/README.md" in output
    store(f"store.get('{url}', {str(tmp_path / NAME)!r}, recursive=True)")
    assert_equal(tmp_path / NAME, alone, output)


def works_on_both_nodes(cluster):
    """Returns whether a task runs on each node: nodes have one core, and thus one task at a time."""
    return len(cluster.tasks()) == 2


def assert_equal(together, alone, output):
    """Compares a study with that of one machine, all of its runs bit by bit."""
    assert "Traceback" not in output
    assert "trained already" not in output
    assert_complete(together, studies.get(NAME), ARMS)
    assert rows(together / "results.csv") == rows(alone / "results.csv")
    for arm in ARMS:
        run = Path("runs") / f"{arm}-seed-0"
        assert output.count(f"{run.name}: ") == 1
        one, other = alone / run, together / run
        with np.load(one / NEWEST) as before, np.load(other / NEWEST) as after:
            assert before.files == after.files
            for name in {*before.files} - {"head"}:
                np.testing.assert_array_equal(before[name], after[name], err_msg=name)
        assert rows(one / "metrics.csv") == rows(other / "metrics.csv")
        assert (one / "evaluation.json").read_bytes() == (other / "evaluation.json").read_bytes()
        # Without validation, there is no best net.
        (net,) = one.glob("*.keras")
        with ZipFile(net) as before, ZipFile(other / net.name) as after:
            assert before.read("model.weights.h5") == after.read("model.weights.h5")


def rows(path):
    """Returns the rows of a table without times."""
    with path.open(newline="") as file:
        return [{name: row[name] for name in row if name != "seconds"} for row in csv.DictReader(file)]
