"""`highway train --cluster`: two nodes train one run; deaths of driver, process and node leave it as if undisturbed."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import psutil
import pytest

from pipelines.core import run as runs
from pipelines.core.hosts import INDEX
from pipelines.training import metrics_file
from tests.killed_run import NEWEST, differences

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[3]
# With dropout, so that there is state besides weights.
WORDS = [
    *("mnist_dense_10", "--data", "mnist_5k", "--subset.train", "200", "--model.depth", "3", "--model.width", "8"),
    *("--model.dropout", "0.2", "--batch-size", "50", "--epochs", "100", "--precision", "float32"),
]


@pytest.fixture
def start(cluster, mnist_5k, tmp_path):
    """A function that starts `highway train` on both nodes."""

    def run(*words):
        return cluster.start(
            [
                *(sys.executable, "-m", "pipelines", "train", *words, "--cluster", cluster.address, "--hosts", "2"),
                *("--data-dir", str(mnist_5k)),
            ],
            {"KERAS_BACKEND": "jax", "PYTHONPATH": str(ROOT)},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
        )

    return run


@pytest.fixture(scope="module")
def alone(mnist_5k, tmp_path_factory):
    """The run of a single undisturbed process."""
    run = tmp_path_factory.mktemp("alone") / "run"
    subprocess.run(
        [sys.executable, "-m", "pipelines", "train", *WORDS, "--run", str(run), "--data-dir", str(mnist_5k)],
        check=True,
        capture_output=True,
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_NUM_CPU_DEVICES": "1"},
    )
    return run


def ended(process, status=0):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    assert "Traceback" not in output
    return output


def wait(process, until):
    while not until():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def stamp(run):
    """Returns when the state was saved; 0 if it was not, or while it is replaced."""
    try:
        return (run / NEWEST).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for_steps(process, run, chance):
    """Waits until a random number of steps, at most a tenth of all, are done."""
    record = runs.open_run(run).record
    # A run that has just started again may have more steps behind it than are recorded.
    until = max([record.step, *(one.step for one in record.starts)]) + chance.randint(1, 40)
    wait(process, lambda: runs.open_run(run).record.step >= until)


def kill_process(index, folder):
    """Kills a process that trains, as the system does when its memory is full."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(folder) in " ".join(process.cmdline()) and process.environ().get(INDEX) == str(index):
                process.kill()
                return
    pytest.fail(f"process {index} does not run")


def lose_process(driver, run, index):
    """Kills a process that trains, and waits until the run has started again."""
    starts = runs.open_run(run).record.starts
    kill_process(index, run)
    wait(driver, lambda: runs.open_run(run).record.starts != starts)


def assert_close(run, alone):
    """Compares a run with that of a single process, which adds numbers in another order."""
    for one, two in zip(*(metrics_file.read(path / "metrics.csv") for path in (alone, run)), strict=True):
        assert {name: two[name] for name in two if name != "seconds"} == pytest.approx(
            {name: value for name, value in one.items() if name != "seconds"}, rel=1e-4, abs=1e-5
        )
    with np.load(alone / NEWEST) as before, np.load(run / NEWEST) as after:
        assert before.files == after.files
        for name in {*before.files} - {"head"}:
            np.testing.assert_allclose(after[name], before[name], rtol=1e-3, atol=2e-5, err_msg=name)


def test_a_run_on_two_nodes_survives_a_signal_and_the_death_of_its_driver_each_process_and_a_node(
    cluster, start, mnist_5k, alone, tmp_path
):
    chance = random.Random(7)
    whole, run = tmp_path / "whole", tmp_path / "run"
    output = ended(start(*WORDS, "--run", "whole"))
    assert re.search(r"run directory \S*whole, report ", output)
    assert [one.processes for one in runs.open_run(whole).record.starts] == [2]

    process = start(*WORDS, "--run", "run", "--checkpoint-steps", "1000")
    wait(process, lambda: run.exists() and runs.open_run(run).record.step)
    # Saved because of the signal, since no checkpoint was due.
    assert not (run / NEWEST).exists()
    process.send_signal(signal.SIGTERM)
    output = ended(process, 143)
    step = runs.open_run(run).record.step
    options = f"--data-dir {mnist_5k} --checkpoint-steps 1000 --cluster {cluster.address} --hosts 2"
    assert (
        f"stopped after step {step:,}. Resume with: KERAS_BACKEND=jax highway train --resume {run} {options}\n"
        in output
    )
    saved = stamp(run)

    process = start("--resume", "run", "--checkpoint-steps", "1")
    wait(process, lambda: stamp(run) > saved)
    again = start("--resume", "run")
    assert f"another process is training in {run}. Wait for it" in ended(again, 2)
    process.kill()
    assert f"resuming after step {step:,}" in process.communicate()[0]
    saved = stamp(run)

    process = start("--resume", "run", "--checkpoint-steps", "1")
    wait(process, lambda: stamp(run) > saved)
    for index in chance.sample(range(2), 2):
        wait_for_steps(process, run, chance)
        lose_process(process, run, index)
    wait_for_steps(process, run, chance)
    node = chance.choice("ab")
    cluster.kill(node)
    cluster.add(node)
    output = ended(process)
    for index in range(2):
        assert re.search(rf"process {index} on \S+ was killed by SIGKILL\n", output)
    assert "Start all of them again" not in output
    assert output.count("was lost after step") == 3
    assert differences(whole, run) == []
    assert_close(run, alone)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


def test_a_run_goes_on_with_the_node_that_is_left(cluster, start, alone, tmp_path):
    chance = random.Random(10)
    run, node = tmp_path / "run", chance.choice("ab")
    process = start(*WORDS, "--run", "run", "--checkpoint-steps", "1", "--min-hosts", "1")
    wait(process, run.exists)
    wait_for_steps(process, run, chance)
    cluster.kill(node)
    try:
        output = ended(process)
    finally:
        cluster.add(node)
    assert output.count("was lost after step") == 1
    assert "1 of 2 nodes take tasks; the run is trained on 1\n" in output
    first, second = runs.open_run(run).record.starts
    assert (first.processes, second.processes) == (2, 1)
    assert first.step == 0 < second.step
    assert_close(run, alone)
