"""The parent of a process that trains along with others; the child is a script."""

import io
import sys
import time

import pytest
from rich.console import Console

from pipelines.core import run as runs
from pipelines.core.errors import LostHostError
from pipelines.core.hosts import COUNT, Hosts
from pipelines.training.processes import host
from pipelines.training.processes.host import HostTask, train_together
from tests.toy_data import RECORD, toy_config

HOSTS = Hosts("localhost:1", 2, 0)
LOGGED = 'sys.stderr.write("E0101 00:00:00.000000 1 a.cc:1] noise\\n")'
CONNECTED = 'os.write(json.loads(sys.argv[-1])["ready"], b"+")'
# The parent gets a signal, once it waits for the child.
STOP = "time.sleep(0.3); os.kill(os.getppid(), signal.SIGTERM); time.sleep(600)"
FATAL = """F0101 00:00:00.000000 7 client.h:80] Terminating process because the JAX distributed service detected fatal
errors. This most likely indicates that another task died."""
# What the leader logs when it waits for one that is gone.
WAITING = "E0101 00:00:00.000000 7 coordination_service.cc:80] Barrier failed\nIt says more.\n"


@pytest.fixture
def train(monkeypatch, tmp_path):
    """A function that runs a script as the child, and returns what the console shows."""

    def run(*lines, folder=tmp_path, hosts=HOSTS):
        code = "\n".join(["import json, os, signal, sys, time", *lines])
        monkeypatch.setattr(host, "CHILD", (sys.executable, "-c", code))
        console = Console(file=io.StringIO(), width=400)
        train_together(HostTask(folder=folder, data_dir=None, config=None), hosts, console)
        return console.file.getvalue()

    return run


def test_a_child_that_has_trained_shows_nothing(train, capfd):
    assert train(CONNECTED, LOGGED) == ""
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("status", [2, 75, 143])
def test_what_a_child_reports_is_passed_on_without_the_log(train, status, capfd):
    with pytest.raises(SystemExit) as end:
        train(CONNECTED, 'sys.stderr.write("highway train: error: no\\n")', f"sys.exit({status})")
    assert end.value.code == status
    assert capfd.readouterr().err == "highway train: error: no\n"


@pytest.mark.parametrize("end", ["os.abort()", "os._exit(1)"])
def test_a_child_that_jax_ends_has_lost_a_process(train, end, capfd):
    with pytest.raises(LostHostError, match=r"one of the 2 processes has died .* again with --resume .*; the run con"):
        train(CONNECTED, f"print({FATAL!r}, file=sys.stderr, flush=True)", end)
    assert capfd.readouterr().err == ""


def test_of_what_follows_a_fatal_error_only_the_program_s_own_message_is_shown(train, capfd):
    with pytest.raises(SystemExit):
        train(
            CONNECTED,
            f"sys.stderr.write({WAITING!r})",
            'sys.stderr.write("highway train: error: no\\n")',
            "sys.exit(75)",
        )
    assert capfd.readouterr().err == "highway train: error: no\n"


def test_a_child_that_is_killed_is_reported_with_its_log(train, capfd):
    with pytest.raises(SystemExit) as end:
        train(CONNECTED, LOGGED, "sys.stderr.flush()", "os.kill(os.getpid(), signal.SIGKILL)")
    assert end.value.code == 137
    noise, error = capfd.readouterr().err.splitlines()
    assert noise.endswith("noise")
    assert error.startswith("highway train: error: process 0 was killed by SIGKILL. Start all of them again with")


def test_processes_that_cannot_connect_to_each_other_say_why(monkeypatch, tmp_path):
    def refuse(*_):
        raise RuntimeError("UNKNOWN: Gloo context initialization failed: Connection refused, remote=[127.0.1.1]:1969")

    monkeypatch.setattr("pipelines.training.exchange.connect", refuse)
    monkeypatch.setattr(host.frameworks, "load", lambda *_: None)
    monkeypatch.setattr(host, "of_environment", lambda: HOSTS)
    monkeypatch.setenv("JAX_NUM_CPU_DEVICES", "1")
    with pytest.raises(LostHostError, match=r"cannot connect to each other: .*\[127\.0\.1\.1\]:1969\. The host name "):
        host.act(HostTask(folder=tmp_path, data_dir=None, config=None))


def test_missing_processes_are_reported_and_not_awaited_for_ever(train, monkeypatch):
    monkeypatch.setattr(host, "NOTICE", 0.05)
    assert "process 0 of 2 waits for the others at localhost:1" in train("time.sleep(0.3)", CONNECTED)
    monkeypatch.setattr(host, "LIMIT", 0.1)
    with pytest.raises(LostHostError, match=r"process 0 of 2 has waited 0 s for the others"):
        train("time.sleep(600)")


def test_a_run_is_claimed_once_its_child_has_checked_it(train, tmp_path, monkeypatch):
    claimed = []
    monkeypatch.setattr(host, "claim", claimed.append)
    descriptors = 'task = json.loads(sys.argv[-1]); os.write(task["ready"], b"!"); os.read(task["answers"], 1)'
    train(CONNECTED, "sys.exit(0)")
    assert claimed == []
    train(CONNECTED, descriptors)
    assert claimed == [tmp_path]


@pytest.fixture
def run(tmp_path):
    """The run of the processes, before its first step."""
    return runs.create(tmp_path / "run", toy_config(), RECORD)


@pytest.mark.parametrize("changes", [{"step": 20}, {"step": 10, "trained": True}, {"step": 10, "state": "finished"}])
def test_after_the_last_step_the_leader_finishes_without_the_others(train, run, monkeypatch, changes):
    monkeypatch.setattr(host, "NOTICE", 0.05)
    monkeypatch.setattr(host, "LIMIT", 0.1)
    # With a single process, `of_environment` finds none.
    child = f'time.sleep(600 if os.environ["{COUNT}"] == "2" else 0)'
    run.update(step=19)
    with pytest.raises(LostHostError, match="has waited"):
        train(child, folder=run.path)
    run.update(**changes)
    assert train(child, folder=run.path).endswith("all steps are done: process 0 finishes the run without the others\n")
    with pytest.raises(LostHostError, match="has waited"):
        train(child, folder=run.path, hosts=Hosts("localhost:1", 2, 1))


@pytest.mark.parametrize(
    ("child", "status"),
    [
        # Not connected: blocked where no signal is handled.
        (("signal.signal(signal.SIGTERM, signal.SIG_IGN)", STOP), 143),
        # It saves and ends.
        (("signal.signal(signal.SIGTERM, lambda *_: sys.exit(9))", CONNECTED, STOP), 9),
        # It is not ready yet to save.
        ((CONNECTED, STOP), 143),
    ],
)
def test_a_signal_reaches_the_child(train, child, status):
    started = time.monotonic()
    with pytest.raises(SystemExit) as end:
        train(*child)
    assert end.value.code == status
    assert time.monotonic() - started < 60
