"""Supervised processes without a framework: each runs a line of Python."""

import os
import signal
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from pipelines.core.errors import StoppedError, UserError
from pipelines.training.processes import supervisor as module
from pipelines.training.processes.local_executor import WorkerTask
from pipelines.training.processes.supervisor import DEATHS, Member, Supervisor, shares


@pytest.fixture
def member(tmp_path, monkeypatch):
    """A function that makes a member which runs a line of Python; `started` in its folder counts its starts."""

    def make(name, code):
        popen = module.subprocess.Popen
        (tmp_path / f"{name}.started").write_text("")
        count = "import os, sys, time, pathlib; p = pathlib.Path(sys.argv[1]); n = len(p.read_text())"
        (tmp_path / f"{name}.py").write_text(f"{count}; p.write_text('x' * (n + 1))\n{code}")

        def run(words, **options):
            who = options["env"]["WHO"]
            return popen([sys.executable, str(tmp_path / f"{who}.py"), str(tmp_path / f"{who}.started")], **options)

        monkeypatch.setattr(module.subprocess, "Popen", run)
        task = WorkerTask(folder=tmp_path, data_dir=None)
        return Member(name, task, {"WHO": name}, tmp_path / "logs" / f"{name}.log")

    return make


def run(*members):
    said = []
    with Supervisor(members, said.append) as running:
        while running.works():
            time.sleep(0.01)
    return said


def starts(tmp_path, name):
    return len((tmp_path / f"{name}.started").read_text())


def test_a_dead_process_is_restarted(member, tmp_path):
    said = run(member("a", "if n == 0: os.kill(os.getpid(), 9)"))
    assert starts(tmp_path, "a") == 2
    assert said == [f"a died (killed by SIGKILL) and is restarted; its output is in {tmp_path}/logs/a.log"]


def test_hung_processes_are_distinguished_from_dead_ones(member, tmp_path):
    (said,) = run(member("a", "if n == 0: os.kill(os.getpid(), 14)"))
    assert said.startswith("a died (hung: no step ended for 30 minutes) and is restarted")


class Ending:
    """Stands in for a process that is alive when it is asked first, and has ended when it is asked again."""

    stdin = None

    def __init__(self, status):
        self.answers = [None, status]

    def poll(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize(
    ("status", "said", "next_one"), [(-9, ["a died (killed by SIGKILL)"], "a"), (0, [], "b"), (-14, ["a died"], "a")]
)
def test_a_process_that_ends_while_it_is_asked_is_noticed(member, monkeypatch, status, said, next_one):
    first, second = member("a", ""), member("b", "")
    started, heard = [], []
    monkeypatch.setattr(Member, "start", lambda one: started.append(one.name))
    running = Supervisor([first], heard.append, then=[second])
    first.process = Ending(status)
    assert running.works()
    assert (started, heard) == ([], [])
    assert running.works()
    assert started == [next_one]
    assert [line[: len(one)] for line, one in zip(heard, said, strict=True)] == said


def test_temporary_files_of_a_dead_process_are_removed(member, tmp_path):
    leaves = "import tempfile; p.with_name(f'left-{n}').write_text(tempfile.mkdtemp())"
    run(member("a", f"{leaves}; n == 0 and os.kill(os.getpid(), 9)"))
    first, second = (Path((tmp_path / f"left-{n}").read_text()) for n in range(2))
    assert first.parent != second.parent
    assert not first.parent.exists()
    assert not second.parent.exists()


@pytest.mark.parametrize(
    ("end", "line"),
    [
        (pytest.raises(StoppedError), ["SIGTERM: every process saves and ends; a second signal ends at once"]),
        # As at a deadline.
        (nullcontext(), []),
    ],
    ids=["signal", "deadline"],
)
def test_processes_save_before_a_stopped_command_ends(member, tmp_path, monkeypatch, end, line):
    monkeypatch.setattr(module, "GRACE", 0.0)
    saves = "(time.sleep(0.3), p.with_name(p.stem + '.saved').touch(), os._exit(143))"
    ready = "p.with_name(p.stem + '.ready').touch(); time.sleep(600)"
    members = [member(name, f"import signal; signal.signal(15, lambda *_: {saves}); {ready}") for name in "ab"]
    said = []
    with end, Supervisor(members, said.append):
        while len(list(tmp_path.glob("*.ready"))) < 2:
            time.sleep(0.01)
        if line:
            raise StoppedError("", signal.SIGTERM)
    assert len(list(tmp_path.glob("*.saved"))) == 2
    assert said == line


def test_a_signal_during_startup_ends_the_processes_already_started(member, tmp_path):
    first, second = member("a", "time.sleep(60)"), member("b", "")

    def stopped():
        raise StoppedError("stopped", signal.SIGTERM)

    second.start = stopped
    said = []
    with pytest.raises(StoppedError), Supervisor([first, second], said.append):
        pytest.fail("it was stopped")
    assert first.process.returncode == -signal.SIGTERM
    assert said == ["SIGTERM: every process saves and ends; a second signal ends at once"]


def test_a_process_that_asks_for_it_is_restarted_silently(member, tmp_path):
    assert run(member("a", "sys.exit(75 if n < 9 else 0)")) == []
    assert starts(tmp_path, "a") == 10


def test_a_process_that_keeps_dying_is_reported_with_its_last_words(member, tmp_path):
    with pytest.raises(UserError, match=rf"a died {DEATHS} times in a row .*\(status 3\)[\s\S]*no such module"):
        run(member("a", "print('no such module', flush=True); os._exit(3)"))
    assert starts(tmp_path, "a") == DEATHS


def test_a_user_error_ends_all_processes_with_its_message(member, tmp_path):
    other = member("a", "time.sleep(600)")
    refused = member("b", "time.sleep(0.2); sys.stderr.write('highway tune: error: lower it: now.\\n'); sys.exit(2)")
    with pytest.raises(UserError, match=r"^lower it: now\.$"):
        run(other, refused)
    assert other.process.poll() is not None


def test_a_finished_process_makes_room_for_the_next(member, tmp_path):
    first = (
        "until = time.monotonic() + 20\nwhile time.monotonic() < until and not p.with_name('c.started').read_text(): "
    )
    slow, quick, last = member("a", first + "time.sleep(0.01)"), member("b", ""), member("c", "")
    quick.task = quick.task.model_copy(update={"cores": (1,)})
    with Supervisor([slow, quick], print, then=[last]) as supervisor:
        while supervisor.works():
            time.sleep(0.01)
    assert [one.done for one in (slow, quick, last)] == [True] * 3
    assert last.task.cores == (1,)


def test_cores_are_shared_without_overlap():
    assert shares([0, 1, 2, 3], 2) == [(0, 1), (2, 3)]
    assert shares([4, 6, 7], 2) == [(4,), (6,)]
    assert shares([0, 1], 2) == [(0,), (1,)]
    assert shares([0, 1], 3) == [(0,), (1,), (0,)]
    assert shares([0, 1, 2], 1) == [(0, 1, 2)]
    assert shares([0, 1, 2], 0) == []


def test_a_process_has_a_group_of_its_own_in_the_same_session(member, tmp_path):
    # Ctrl-C goes to a group, and nice values count within a session.
    run(member("a", f"sys.exit(not (os.getpgid(0) != {os.getpgid(0)} and os.getsid(0) == {os.getsid(0)}))"))
    assert starts(tmp_path, "a") == 1
