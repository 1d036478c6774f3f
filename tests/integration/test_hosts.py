"""Two processes of this machine that train one run together, on JAX."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pytest

from pipelines.core import run as runs
from pipelines.core.hosts import ADDRESSES, COUNT, INDEX
from pipelines.training import metrics_file
from tests.interrupted import at
from tests.killed_run import NEWEST, ROOT, differences

pytestmark = pytest.mark.slow
# With dropout, so that there is state besides weights; every step is followed by a save.
WORDS = [
    *("mnist_dense_10", "--data", "mnist_5k", "--subset.train", "200", "--model.depth", "3", "--model.width", "8"),
    *("--model.dropout", "0.2", "--batch-size", "50", "--epochs", "10", "--precision", "float32"),
    *("--checkpoint-steps", "1"),
]
# Everything that depends on the whole batch: batch normalization, dropout, augmentation that draws for each image, and
# mixup. With a rate of 0.01, rounding is not amplified.
CONVOLUTIONS = [
    *("mnist_conv_32_modern", "--data", "mnist_5k", "--subset.train", "200", "--model.width", "8"),
    *("--model.dropout", "0.2", "--augment.mixup", "0.2", "--optimizer.learning-rate", "0.01", "--batch-size", "40"),
    *("--epochs", "2", "--precision", "float32", "--checkpoint-steps", "1"),
]
# A whitened kernel, and smaller images in the first epoch.
GROWING = [
    *("cifar10_modern", "--data", "mnist_5k", "--subset.train", "200", "--model.width", "8", "--model.whitened"),
    *("--small-side", "20", "--optimizer.learning-rate", "0.01", "--batch-size", "40", "--epochs", "2"),
    *("--precision", "float32", "--checkpoint-steps", "1"),
]


# `highway`, but it does not wait for other processes for long.
IMPATIENT = """
import sys
from pipelines.training.processes import host
from pipelines.verbs.cli import main
host.NOTICE, host.LIMIT = 0.5, 1.0
sys.exit(main(sys.argv[1:]))
"""
# `highway`, but it copies its run as a kill after the second step of the second epoch would leave it.
COPIED = 7
COPYING = f"""
import sys
from pathlib import Path
from pipelines.core import frameworks
from pipelines.verbs.cli import main
frameworks.load()
from tests.interrupted import copied
run, to = map(Path, sys.argv[1:3])
with copied(run, to, {{({COPIED}, False)}}):
    sys.exit(main(sys.argv[3:]))
"""
# The child of `highway`, but it dies when it would write the trained net.
DYING_CHILD = """
import os, signal
from pipelines.core import files
replacing = files.replacing
def die_at_the_net(path, **options):
    if path.name == "model.keras":
        os.kill(os.getpid(), signal.SIGKILL)
    return replacing(path, **options)
files.replacing = die_at_the_net
from pipelines.training.processes.host import HostTask, act, perform
perform(HostTask, act)
"""
DYING = f"""
import sys
from pipelines.training.processes import host
from pipelines.verbs.cli import main
host.CHILD = (sys.executable, "-c", {DYING_CHILD!r})
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="module")
def start(mnist_5k):
    """A function that starts a process in `highway train`."""

    def run(words, program=("-m", "pipelines"), **variables):
        kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        return subprocess.Popen(
            [sys.executable, *program, "train", *map(str, words), "--data-dir", str(mnist_5k)],
            env={**kept, "KERAS_BACKEND": "jax", "JAX_NUM_CPU_DEVICES": "1", **variables},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    return run


@pytest.fixture(scope="module")
def start_pair(start):
    """A function that starts two connected processes, given the words of each."""

    def run(leader, follower, program=("-m", "pipelines")):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{probe.getsockname()[1]}"
        return [
            start(words, program, **{ADDRESSES: address, COUNT: "2", INDEX: str(index)})
            for index, words in enumerate((leader, follower))
        ]

    return run


def ended(process, status=0):
    """Waits for a process and returns its output."""
    output, errors = process.communicate(timeout=120)
    assert process.returncode == status, output + errors
    return output, errors


def state(run):
    """Returns the arrays of the last checkpoint."""
    with np.load(run / NEWEST) as arrays:
        return {name: arrays[name] for name in arrays.files if name != "head"}


@pytest.fixture(scope="module")
def trained(start, start_pair, shared):
    """A folder with a run of two processes and the same run of one, and the output of the first two."""

    def make(folder):
        runs_folder = folder / "runs"
        runs_folder.mkdir()
        alone = start([*WORDS, "--run", runs_folder / "alone"])
        pair = start_pair([*WORDS, "--run", runs_folder / "pair"], [*WORDS, "--run", runs_folder / "none"])
        outputs = [ended(process) for process in pair]
        ended(alone)
        (folder / "outputs.json").write_text(json.dumps(outputs))

    folder = shared("hosts", make)
    return folder / "runs", json.loads((folder / "outputs.json").read_text())


def assert_equal_but_for_rounding(alone, other, rows, arrays):
    """Compares the rows of metrics.csv, except for seconds, and the arrays of the last checkpoint of two runs.

    Args:
        alone: a run of one process.
        other: the same run of several.
        rows: tolerance of the rows, `rel` and `abs`.
        arrays: tolerance of the arrays, `rtol` and `atol`.
    """
    for one, two in zip(*(metrics_file.read(run / "metrics.csv") for run in (alone, other)), strict=True):
        assert {name: two[name] for name in one if name != "seconds"} == pytest.approx(
            {name: value for name, value in one.items() if name != "seconds"}, **rows
        )
    before, after = state(alone), state(other)
    assert before.keys() == after.keys()
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, **arrays, err_msg=name)


def names(run):
    return {path.name for path in run.rglob("*") if not path.name.startswith("events.")}


def besides_waiting(output):
    """Returns an output without the one notice of process 1, should process 0 start 20 s later."""
    notice = (
        r"process 1 of 2 waits for the others at 127\.0\.0\.1:\d+\. All of them need the same "
        rf"{ADDRESSES}, and must reach it without a proxy\.\n"
    )
    return re.sub(notice, "", output, count=1)


def test_two_processes_train_one_run(trained):
    folder, ((output, errors), followed) = trained
    alone, pair = folder / "alone", folder / "pair"
    assert sorted(path.name for path in folder.iterdir()) == ["alone", "pair"]
    assert names(pair) == names(alone)
    assert (besides_waiting(followed[0]), followed[1]) == ("", "")
    # The folder was renamed once it was complete.
    assert re.search(r"run directory \S+/runs/pair\b", output)
    assert errors == ""

    assert_equal_but_for_rounding(alone, pair, rows={"rel": 2e-3, "abs": 1e-4}, arrays={"rtol": 1e-2, "atol": 1e-4})
    assert (pair / "config.json").read_bytes() == (alone / "config.json").read_bytes()
    assert [one.model_dump() for one in runs.open_run(pair).record.starts] == [
        {"step": 0, "devices": 2, "processes": 2}
    ]
    assert "starts" not in json.loads((alone / "run.json").read_bytes())
    # Earlier versions refuse fields that they do not know.
    assert "trained" not in json.loads((pair / "run.json").read_bytes())


def test_two_processes_with_two_devices_each_train_a_convolutional_net_as_one_does(start, start_pair, tmp_path):
    alone, pair, run, none = (tmp_path / name for name in ("alone", "pair", "run", "none"))
    one = start([*CONVOLUTIONS, "--run", alone], ("-c", COPYING, alone, tmp_path / "copies"))
    words = [*CONVOLUTIONS, "--devices", 2]
    for process in (*start_pair([*words, "--run", pair], words), one):
        ended(process)
    assert [one.model_dump() for one in runs.open_run(pair).record.starts] == [
        {"step": 0, "devices": 4, "processes": 2}
    ]
    tolerances = {"rows": {"rel": 1e-4, "abs": 1e-5}, "arrays": {"rtol": 1e-3, "atol": 1e-5}}
    assert_equal_but_for_rounding(alone, pair, **tolerances)

    # They also finish what one process has begun.
    shutil.copytree(at(tmp_path / "copies", COPIED), run)
    leader, follower = start_pair(["--resume", run, "--devices", 2], ["--resume", none, "--devices", 2])
    output, errors = ended(leader)
    ended(follower)
    assert "each batch was divided among 1 device and is now on 4 of 2 processes: results are no longer" in output
    assert f"resuming after step {COPIED}\n" in output
    assert errors == ""
    # The first epoch is that of the one process, with its seconds.
    first, second = ((path / "metrics.csv").read_text().splitlines()[:2] for path in (alone, run))
    assert first == second
    assert_equal_but_for_rounding(alone, run, **tolerances)
    assert [one.model_dump() for one in runs.open_run(run).record.starts] == [
        {"step": COPIED, "devices": 4, "processes": 2}
    ]


def test_two_processes_train_on_the_same_smaller_images(start, start_pair, tmp_path):
    alone, pair = tmp_path / "alone", tmp_path / "pair"
    for process in (*start_pair([*GROWING, "--run", pair], GROWING), start([*GROWING, "--run", alone])):
        ended(process)
    assert_equal_but_for_rounding(alone, pair, rows={"rel": 2e-3, "abs": 1e-4}, arrays={"rtol": 1e-2, "atol": 1e-3})


def test_a_process_with_another_configuration_ends_all_before_anything_is_written(start_pair, tmp_path):
    leader, follower = start_pair(
        [*WORDS, "--run", tmp_path / "run"], [*WORDS, "--epochs", 11, "--run", tmp_path / "other"]
    )
    output, errors = ended(follower, 2)
    assert (besides_waiting(output), errors) == (
        "",
        "highway train: error: this process was started with epochs 11, and process 0 with 10. Start all processes "
        "with the same command.\n",
    )
    output, errors = ended(leader, 75)
    assert (besides_waiting(output), errors) == (
        "",
        "highway train: error: one of the 2 processes has died or cannot be reached. Start all of them again, with "
        "--resume if there is a run directory.\n",
    )
    assert list(tmp_path.iterdir()) == []


def stamp(run):
    """Returns when the state was saved; 0 if it was not, or while it is replaced."""
    try:
        return (run / NEWEST).stat().st_mtime_ns
    except FileNotFoundError:
        return 0


def wait_for_save(run, pair):
    """Waits until the leader of a pair has saved a state."""
    before = stamp(run)
    while stamp(run) in {0, before}:
        assert all(process.poll() is None for process in pair)
        time.sleep(0.01)


def test_the_leader_finishes_alone_what_is_left_after_the_last_step(trained, start, tmp_path):
    pair, run = trained[0] / "pair", tmp_path / "run"
    shutil.copytree(pair, run)
    for name in ("model.keras", "report.md"):
        (run / name).unlink()
    runs.open_run(run).update(state="running")
    hosts = {ADDRESSES: "127.0.0.1:1234", COUNT: "2", INDEX: "0"}
    output, errors = ended(start(["--resume", run], ("-c", IMPATIENT), **hosts))
    assert errors == ""
    assert "all steps are done: process 0 finishes the run without the others\n" in output
    # No batch was divided in another way.
    assert "bit-identical" not in output
    assert differences(pair, run) == []
    assert runs.open_run(run).record.starts == runs.open_run(pair).record.starts
    assert names(run) == names(pair)


def test_a_leader_that_dies_after_early_stopping_finishes_alone(start, start_pair, tmp_path):
    run = tmp_path / "run"
    # Nothing improves after the first epoch, and no state is saved before the end.
    words = [*WORDS[:-1], 1000, "--patience", 1, "--optimizer.learning-rate", 1e-9]
    leader, follower = start_pair([*words, "--run", run], words, ("-c", DYING))
    ended(leader, 128 + signal.SIGKILL)
    ended(follower)
    assert not (run / "model.keras").exists()

    hosts = {ADDRESSES: "127.0.0.1:1234", COUNT: "2", INDEX: "0"}
    output, _ = ended(start(["--resume", run], ("-c", IMPATIENT), **hosts))
    assert "all steps are done: process 0 finishes the run without the others\n" in output
    assert "resuming after step 8\n" in output
    assert "bit-identical" not in output
    record = runs.open_run(run).record
    assert (record.state, record.step, [start.processes for start in record.starts]) == ("finished", 8, [2])


def test_a_pair_that_is_killed_stopped_and_resumed_ends_as_if_undisturbed(
    trained, start, start_pair, mnist_5k, tmp_path
):
    run, none = tmp_path / "run", tmp_path / "none"
    leader, follower = pair = start_pair([*WORDS, "--run", run], WORDS)
    wait_for_save(run, pair)
    follower.kill()
    _, errors = ended(leader, 75)
    assert errors == (
        "highway train: error: one of the 2 processes has died or cannot be reached. Start all of them again with "
        f"--resume {run} --data-dir {mnist_5k} --checkpoint-steps 1; the run continues from its last checkpoint.\n"
    )
    ended(follower, -signal.SIGKILL)

    leader, follower = pair = start_pair(["--resume", run], ["--resume", none])
    wait_for_save(run, pair)
    follower.send_signal(signal.SIGTERM)
    for process in pair:
        assert "stopped by SIGTERM after step" in (errors := ended(process, 143)[1])
        assert f"--data-dir {mnist_5k}\n" in errors
    shutil.copytree(run, tmp_path / "alone")

    for process in start_pair(["--resume", run, "--checkpoint-steps", 1], ["--resume", none]):
        ended(process)
    assert differences(trained[0] / "pair", run) == []
    assert not none.exists()

    output, _ = ended(start(["--resume", tmp_path / "alone", "--devices", 1]))
    assert "each batch was divided among 2 devices of 2 processes and is now on 1: results are no longer" in output
    assert [one.processes for one in runs.open_run(tmp_path / "alone").record.starts] == [2, 2, 1]
    before, after = state(trained[0] / "pair"), state(tmp_path / "alone")
    for name, value in before.items():
        np.testing.assert_allclose(after[name], value, rtol=1e-2, atol=1e-4, err_msg=name)


def test_a_signal_between_two_questions_ends_both_after_the_same_step(start_pair, tmp_path):
    run, per_epoch = tmp_path / "run", 40
    words = [*WORDS[:-2], "--subset.train", 2000, "--epochs", 1000]
    pair = start_pair([*words, "--run", run], words)
    # From the second epoch on, these short steps pass without a question.
    while len(metrics_file.read(run / "metrics.csv") if run.exists() else ()) < 2:
        assert all(process.poll() is None for process in pair)
        time.sleep(0.01)
    pair[1].send_signal(signal.SIGTERM)
    found = [re.search(r"stopped by SIGTERM after step ([\d,]+) of 40,000", ended(one, 143)[1]) for one in pair]
    steps = {int(match[1].replace(",", "")) for match in found}
    assert steps == {runs.open_run(run).record.step}
    assert steps.pop() >= 2 * per_epoch
