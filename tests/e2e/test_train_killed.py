"""A training process that is killed, stopped or out of disk space at any time ends as if uninterrupted."""

import os
import random
import re
import signal
import sys
import time

import keras
import pytest

from pipelines.verbs.cli import main
from tests.killed_run import NEWEST, Command, differences, train, train_and_kill
from tests.toy_data import ToyData

PROGRAM = (sys.executable, "-m", "tests.toy_train")
# Every step is followed by a save, so that many kills hit one.
STACK = """mnist_dense_50 --model.depth 3 --model.width 8 --model.dropout 0.2 --augment.pad 2 --epochs 5
    --batch-size 20 --optimizer.ema 0.9 --schedule.kind cosine --schedule.warmup-steps 5 --steps-per-execution 2
    --precision mixed_float16 --checkpoint-steps 1"""
# A third of the recipe's layers, of every kind that it has: each started process traces them anew.
CONVOLUTIONS = """mnist_conv_16 --model.stages
    {"filters":4,"entry":5,"padding":"valid","blocks":[3],"pool":[3,2],"dropout":0.3}
    {"filters":4,"entry":null,"blocks":[3],"pool":[2,2],"dropout":0.5}
    --model.dropout 0.2 --augment.pad 2 --epochs 5 --batch-size 20
    --optimizer.ema 0.9 --schedule.kind cosine --schedule.warmup-steps 5
    --precision mixed_bfloat16 --checkpoint-steps 1"""
KILLS = 2
# What a command that does not run on the default backend begins with.
ON = "" if keras.backend.backend() == "tensorflow" else f"KERAS_BACKEND={keras.backend.backend()} "


def command(run, words=STACK):
    return Command(run, words.split(), PROGRAM)


@pytest.fixture(scope="module")
def whole(shared):
    """An uninterrupted run, trained by this process."""

    def make(folder):
        with pytest.MonkeyPatch.context() as patch:
            ToyData(side=28).install(patch)
            assert main(["train", *STACK.split(), "--run", str(folder / "run")]) == 0

    return shared("uninterrupted", make) / "run"


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_as_if_uninterrupted(tmp_path):
    # JAX takes long to compile convolutions.
    words = f"{STACK} --precision float32" if os.environ["KERAS_BACKEND"] == "jax" else CONVOLUTIONS
    expected = tmp_path / "whole"
    times = train(command(expected, words))
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"moments of seed {seed}\n")
    chance = random.Random(seed)
    kills = runs = 0
    while kills < KILLS:
        killed = command(tmp_path / f"run_{runs}", words)
        made = train_and_kill(killed, times, KILLS - kills, chance)
        sys.stdout.write(killed.log.read_text())
        assert differences(expected, killed.run) == []
        assert not list(killed.run.rglob(".*"))
        kills += made
        runs += 1
        if not made:
            times = times.halved


@pytest.fixture
def stopped(tmp_path):
    return command(tmp_path / "run")


def wait_for_save(process, of):
    """Waits until a process has saved its first checkpoint."""
    newest = of.run / NEWEST
    before = newest.stat().st_mtime_ns if newest.exists() else 0
    while process.poll() is None and not (newest.exists() and newest.stat().st_mtime_ns > before):
        time.sleep(0.01)


def stop(command, number, status):
    # Of the first command; those that resume have none.
    options = "" if command.run.exists() else " --checkpoint-steps 1"
    process = command.start()
    wait_for_save(process, command)
    process.send_signal(number)
    assert process.wait() == status, command.log.read_text()
    output = command.log.read_text()
    assert f"{number.name}: finishes the step and saves; a second signal ends at once" in output
    assert re.search(rf"highway train: stopped by {number.name} after step \d+ of \d+, and saved", output)
    assert output.endswith(f"Resume with: {ON}highway train --resume {command.run}{options}\n")
    assert "Traceback" not in output


def test_a_run_killed_once_ends_as_if_uninterrupted(whole, stopped):
    process = stopped.start()
    wait_for_save(process, stopped)
    # Within a few steps, often in the middle of a save.
    time.sleep(random.random() / 10)
    process.kill()
    assert process.wait() in {-signal.SIGKILL, 0}
    if not stopped.finished:
        train(stopped)
    assert differences(whole, stopped.run) == []
    assert not list(stopped.run.rglob(".*"))


@pytest.mark.slow
def test_a_run_out_of_disk_space_and_then_stopped_ends_as_if_uninterrupted(whole, stopped):
    # The shell's limit on the size of a file, in blocks: only the state is larger than that.
    small = Command(stopped.run, stopped.words, ("sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *stopped.program))
    process = small.start()
    assert process.wait() == 2
    output = small.log.read_text()
    assert re.search(r"the disk is full \(.*File too large.*\)\. Everything saved before is intact", output)
    assert output.endswith(f"resume with: {ON}highway train --resume {stopped.run} --checkpoint-steps 1\n")
    assert "Traceback" not in output
    assert not [path for path in stopped.run.rglob("*") if path.name.startswith(".") or path.name == NEWEST.name]
    stop(stopped, signal.SIGINT, 130)
    if os.environ["KERAS_BACKEND"] == "tensorflow":
        # Signals are handled the same way on every backend.
        stop(stopped, signal.SIGTERM, 143)
    train(stopped)
    assert differences(whole, stopped.run) == []
