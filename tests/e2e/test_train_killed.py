"""A training that is killed, stopped or out of disk space, whenever it is, ends as if it had not been."""

import os
import random
import re
import signal
import sys
import time

import pytest

from tests.killed_run import NEWEST, Command, differences, train, train_and_kill

PROGRAM = (sys.executable, "-m", "tests.toy_train")
KILLS = 3
# Every step is followed by a save, so that many a kill comes in the middle of one.
CONVOLUTIONS = """mnist_conv_16 --model.width 4 --epochs 6 --batch-size 20 --augment.pad 2 --optimizer.ema 0.9
    --schedule.kind cosine --schedule.warmup-steps 5 --precision mixed_float16 --checkpoint-steps 1"""
# On JAX many steps of a stack are one program, and a program of convolutions takes long to compile.
STACK = """mnist_dense_50 --model.depth 4 --model.width 12 --epochs 40 --batch-size 20 --optimizer.ema 0.9
    --steps-per-execution 2 --precision mixed_float16 --checkpoint-steps 1"""
WORDS = {"tensorflow": CONVOLUTIONS, "jax": STACK}


def command(run, *more):
    return Command(run, [*WORDS[os.environ["KERAS_BACKEND"]].split(), *more], PROGRAM)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody kills, and how long it takes."""
    run = tmp_path_factory.mktemp("whole") / "run"
    return run, train(command(run))


def test_killed_at_random_moments(whole, tmp_path):
    kill_and_compare(*whole, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_killed_in_other_precisions_with_more_state(tmp_path, precision):
    more = ["--precision", precision, "--model.dropout", "0.2", "--optimizer.momentum", "0.9"]
    expected = command(tmp_path / "whole", *more)
    kill_and_compare(expected.run, train(expected), tmp_path, *more)


def kill_and_compare(expected, times, folder, *more):
    """Kills runs until there were enough kills; each must end bit-identical to the undisturbed one."""
    seed = random.SystemRandom().randrange(10**6)
    sys.stdout.write(f"moments of seed {seed}\n")
    chance = random.Random(seed)
    kills = runs = 0
    while kills < KILLS:
        killed = command(folder / f"run_{runs}", *more)
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


def saved(process, of):
    """Waits for the first checkpoint of a process."""
    newest = of.run / NEWEST
    before = newest.stat().st_mtime_ns if newest.exists() else 0
    while process.poll() is None and not (newest.exists() and newest.stat().st_mtime_ns > before):
        time.sleep(0.01)


def test_asked_to_end(whole, stopped):
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        process = stopped.start()
        saved(process, stopped)
        process.send_signal(number)
        assert process.wait() == status, stopped.log.read_text()
        said = stopped.log.read_text()
        assert f"{number.name}: finishes the step and saves; a second signal ends at once" in said
        assert re.search(rf"highway train: stopped by {number.name} after step \d+ of \d+, and saved", said)
        assert said.endswith(f"Resume with: highway train --resume {stopped.run}\n")
        assert "Traceback" not in said
    train(stopped)
    assert differences(whole[0], stopped.run) == []


def test_out_of_space(whole, stopped):
    # The shell's limit on the size of a file, in blocks: the state is larger, all that is written before it is not.
    small = Command(stopped.run, stopped.words, ("sh", "-c", 'ulimit -f 16; exec "$@"', "sh", *stopped.program))
    process = small.start()
    assert process.wait() == 2
    said = small.log.read_text()
    assert re.search(r"the disk is full \(.*File too large.*\)\. Everything saved before is intact", said)
    assert said.endswith(f"resume with: highway train --resume {stopped.run}\n")
    assert "Traceback" not in said
    assert not [path for path in stopped.run.rglob("*") if path.name.startswith(".") or path.name == NEWEST.name]
    train(stopped)
    assert differences(whole[0], stopped.run) == []
