"""`highway reproduce --cluster`: the runs of a study as tasks equal those of processes of one machine."""

import csv
import os
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import psutil
import pytest

from pipelines import studies
from pipelines.studies.run.study_plan import search_folder
from pipelines.tuning import search_state
from pipelines.tuning.driver import drive, opened
from pipelines.tuning.search_plan import SEARCH_FILE, open_plan
from tests import long_study
from tests.executors import Shuffled
from tests.finished_study import BUDGET, assert_complete, prepare
from tests.killed_run import NEWEST

pytestmark = pytest.mark.slow
NAME, ARMS = "bias", tuple(f"10-layers-bias-{bias}" for bias in (6, 4, 2))
WORDS = (sys.executable, "-m", "tests.long_study", "reproduce", NAME, "--budget", BUDGET, "--arms", *ARMS)
LOSS = re.compile(r"^(.+) has lost its process or node and starts again: ", re.MULTILINE)


@pytest.fixture(scope="module")
def toy(shared):
    return shared("studied", prepare)


@pytest.fixture(scope="module")
def alone(cluster, toy, tmp_path_factory):
    """The folder of the study, run by this machine. The others are no siblings of it, and do not copy its runs."""
    folder = tmp_path_factory.mktemp("alone") / NAME
    status, output = cluster.run(words(toy, "--to", str(folder)), preexec_fn=on_one_core)
    assert status == 0, output
    return folder


def on_one_core():
    """Confines a process to one core, as the tasks of the cluster."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})


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
        """Names of the runs or trials that have lost their process or node, one for each loss."""
        return LOSS.findall(self.output)

    def wait_for(self, condition):
        while not condition():
            assert self._process.poll() is None, self.output
            time.sleep(0.05)

    def trainer(self, cluster, run):
        """Waits for the next checkpoint of a run, and returns the process that trains it."""
        before, found = stamp(run), []

        def saved():
            found[:] = [task for task in cluster.tasks() if holds(task, run)]
            return found and stamp(run) > before

        self.wait_for(saved)
        return found[0]

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
    run = folder / "runs" / f"{long_study.ARM}-seed-0"
    os.kill(study.trainer(cluster, run), signal.SIGKILL)
    study.wait_for(lambda: study.losses)
    trainer = study.trainer(cluster, run)
    node = next(name for name in "ab" if trainer in cluster.tasks_on(name))
    cluster.kill(node)
    cluster.add(node)
    assert_equal(folder, alone, study.end())
    assert study.losses == [run.name, run.name]
    assert len(resumed_steps(cluster, run)) >= 2


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


def test_a_study_that_draws_settings_survives_the_death_of_a_node(cluster, toy, tmp_path):
    name, folder = "optimization", tmp_path / "together"
    program = (sys.executable, "-m", "tests.shallow_study", "reproduce", name, "--budget", BUDGET)
    words = [*program, "--data-dir", str(toy), "--to", str(folder), "--cluster", cluster.address]
    study = Study(cluster, tmp_path / "log", words)
    study.wait_for(lambda: results_of(search_folder(folder)) and works_on_both_nodes(cluster))
    cluster.kill("a")
    cluster.add("a")
    study.wait_for(lambda: study.losses)
    # Undisturbed, in this process; both searches go on at the same time.
    plan = open_plan(search_folder(folder))
    SEARCH_FILE.keep(plan, tmp_path / "alone")
    drive(opened(plan, tmp_path / "alone", toy), Shuffled(capacity=1), data_dir=toy)

    assert "Traceback" not in study.end()
    assert re.fullmatch(r"trial \d", study.losses[0])
    found = results_of(search_folder(folder))
    assert [trial.values["net"] for trial in found] == [*studies.get(name).arms]
    assert {trial.status for trial in found} == {"completed"}
    assert found == results_of(tmp_path / "alone")
    assert [(row["arm"], row["state"]) for row in rows(folder / "results.csv")] == [
        (arm, "finished") for arm in studies.get(name).arms
    ]
    assert (folder / "README.md").exists()


def holds(process, run):
    """Returns whether a process has locked a run."""
    try:
        return str(run / "config.json") in [file.path for file in psutil.Process(process).open_files()]
    except psutil.NoSuchProcess:
        return False


def stamp(run):
    """Returns the time of the newest checkpoint of a run; 0 if there is none."""
    newest = run / NEWEST
    return newest.stat().st_mtime_ns if newest.exists() else 0


def resumed_steps(cluster, run):
    """Returns the steps after which nodes have resumed a run, by what they have printed."""
    printed = "".join(path.read_text() for path in cluster.folder.glob("ray/session_*/logs/worker-*.out"))
    return re.findall(rf"run directory {run}\nresuming after step (\d+)\n", printed)


def works_on_both_nodes(cluster):
    """Returns whether a task runs on each node: nodes have one core, and thus one task at a time."""
    return len(cluster.tasks()) == 2


def assert_equal(together, alone, output):
    """Compares a study with that of one machine, all of its runs bit by bit."""
    assert "Traceback" not in output
    assert "trained already" not in output
    study = studies.get(NAME)
    assert_complete(together, replace(study, arms=long_study.lengthened(study.arms)), ARMS)
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


def results_of(folder):
    """Returns the trials of a search that have ended, without times."""
    state = search_state.read(folder)
    return [replace(trial, since=0, seconds=0) for trial in state.trials if trial.over] if state else []


def rows(path):
    """Returns the rows of a table without times."""
    with path.open(newline="") as file:
        return [{name: row[name] for name in row if name != "seconds"} for row in csv.DictReader(file)]
