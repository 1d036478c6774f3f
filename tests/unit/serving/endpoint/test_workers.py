"""The supervisor of worker processes: signals, the shared port, and workers that cannot start or that end."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

import pytest

from tests.endpoint import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="workers are forked")
PROGRAM = """
import errno, glob, os, signal, socket, sys, time
from serving.endpoint import workers
from serving.engine.crashes import Crashes
from serving.engine.readiness import Readiness

workers.PAUSE = 0.01
listening = socket.create_server(("127.0.0.1", 0))
readiness = Readiness(2)

def say(*words):
    # At once, so that lines of several processes do not mix.
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())

def stop():
    os.kill(os.getppid(), signal.SIGTERM)
    # Longer than the signal takes to come back.
    time.sleep(20)

{}
with workers.metrics_folder():
    sys.exit(workers.supervise(work, {}, Crashes(2), readiness, listening))
"""
# Says each signal that it gets, closes the port at the first, and ends at the second.
DRAINING = """
def drain(number, _):
    if listening.fileno() < 0:
        say("cut short by", signal.Signals(number).name)
        os._exit(0)
    listening.close()
    say("draining")

def work():
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, drain)
    say("port", listening.getsockname()[1])
    time.sleep(20)
"""
# The first fork fails.
UNFORKABLE = """
fork, failures = os.fork, [BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")]

def failing_fork():
    if failures:
        raise failures.pop()
    return fork()

os.fork = failing_fork

def work():
    say("working")
    stop()
"""
# The first worker ends, and its replacement counts on.
COUNTING = """
leave = readiness.leave

def recorded_leave(worker):
    say("left", worker)
    leave(worker)

readiness.leave = recorded_leave

def work():
    from prometheus_client import Counter
    from prometheus_client.multiprocess import MultiProcessCollector

    Counter("answers", "Answers.").inc()
    files = glob.glob(os.environ["PROMETHEUS_MULTIPROC_DIR"] + "/*")
    (answers,) = (sample.value for metric in MultiProcessCollector(None).collect() for sample in metric.samples)
    say("files", len(files), "answers", answers)
    if answers == 2:
        stop()
"""


@contextmanager
def supervisor(work, count):
    """Yields a process that supervises workers; its output is that of all of them."""
    words = [sys.executable, "-c", PROGRAM.format(work, count)]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process, count):
    return [process.stdout.readline().rstrip() for _ in range(count)]


@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_the_port_closes_with_those_of_the_workers_and_a_second_signal_reaches_them(second):
    with supervisor(DRAINING, 2) as process:
        (port,) = {int(re.fullmatch(r"port (\d+)", line)[1]) for line in lines(process, 2)}
        process.send_signal(signal.SIGTERM)
        assert lines(process, 2) == ["draining"] * 2
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), 60)
        process.send_signal(signal.Signals[second])
        assert lines(process, 2) == [f"cut short by {second}"] * 2
        assert process.wait(60) == 0


def test_sigint_stops_workers_that_have_no_handler_for_it():
    with supervisor("def work():\n    say('working')\n    time.sleep(20)\n", 2) as process:
        assert lines(process, 2) == ["working"] * 2
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


def test_a_worker_that_cannot_be_forked_is_started_later():
    with supervisor(UNFORKABLE, 1) as process:
        assert lines(process, 1) == ["working"]
        assert process.wait(60) == 0


def test_a_worker_that_ends_is_no_longer_ready_and_leaves_no_files_of_metrics_behind():
    with supervisor(COUNTING, 1) as process:
        assert lines(process, 3) == ["files 1 answers 1.0", "left 0", "files 1 answers 2.0"]
        assert process.wait(60) == 0


def test_the_folder_of_a_killed_endpoint_is_removed_by_the_next_one(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    sleeping = "def work():\n    say('working')\n    time.sleep(20)\n"
    with supervisor(sleeping, 1) as living, supervisor(sleeping, 1) as killed:
        assert lines(living, 1) == lines(killed, 1) == ["working"]
        assert len(list(tmp_path.iterdir())) == 2
        killed.kill()
        # Until its worker has ended, too.
        killed.stdout.read()
        with supervisor("def work():\n    stop()\n", 1) as other:
            assert other.wait(60) == 0
        assert len(list(tmp_path.iterdir())) == 1
        living.send_signal(signal.SIGINT)
        assert living.wait(60) == 0
    assert not list(tmp_path.iterdir())


def test_only_folders_with_nothing_but_metrics_are_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    kept = {"results": "notes.txt", "archive": "model.db/1"}
    for name, file in {**kept, "killed": "counter_0.db", "": "gauge_all_1.db"}.items():
        path = tmp_path / f"highway-workers-{name}" / file
        path.parent.mkdir(parents=True)
        path.write_text("")
    with supervisor("def work():\n    stop()\n", 1) as process:
        assert process.wait(60) == 0
    assert {one.name for one in tmp_path.iterdir()} == {f"highway-workers-{name}" for name in kept}
    assert all((tmp_path / f"highway-workers-{name}" / file).is_file() for name, file in kept.items())
