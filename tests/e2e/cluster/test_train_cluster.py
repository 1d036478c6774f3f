"""`highway train --cluster`: two nodes train one run; deaths of driver, process and node leave it as if undisturbed."""

import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from pipelines.core import run as runs
from pipelines.core.hosts import INDEX
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


def ended(process, status=0):
    output, _ = process.communicate(timeout=300)
    assert process.returncode == status, output
    assert "Traceback" not in output
    return output


def wait(process, until):
    while not until():
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.01)


def kill_process(index, folder):
    """Kills a process that trains, as the system does when its memory is full."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if str(folder) in " ".join(process.cmdline()) and process.environ().get(INDEX) == str(index):
                process.kill()
                return
    pytest.fail(f"process {index} does not run")


def test_a_run_on_two_nodes_survives_a_signal_and_the_death_of_its_driver_a_process_and_a_node(
    cluster, start, mnist_5k, tmp_path
):
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
    saved = (run / NEWEST).stat().st_mtime_ns

    process = start("--resume", "run", "--checkpoint-steps", "1")
    wait(process, lambda: (run / NEWEST).stat().st_mtime_ns > saved)
    again = start("--resume", "run")
    assert f"another process is training in {run}. Wait for it" in ended(again, 2)
    process.kill()
    assert f"resuming after step {step:,}" in process.communicate()[0]
    saved = (run / NEWEST).stat().st_mtime_ns

    process = start("--resume", "run", "--checkpoint-steps", "1")
    wait(process, lambda: (run / NEWEST).stat().st_mtime_ns > saved)
    starts = runs.open_run(run).record.starts
    kill_process(1, run)
    wait(process, lambda: runs.open_run(run).record.starts != starts)
    started = runs.open_run(run).record.step
    wait(process, lambda: runs.open_run(run).record.step > started)
    cluster.kill("b")
    cluster.add("b")
    output = ended(process)
    assert re.search(r"process 1 on \S+ was killed by SIGKILL\n", output)
    assert "Start all of them again" not in output
    assert output.count("was lost after step") == 2
    assert differences(whole, run) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]
