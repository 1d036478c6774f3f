"""The executor of this machine, with real processes that load no framework."""

import os
import sys
import time
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.core.executor import ATTEMPTS
from pipelines.training.processes import local_executor as module
from pipelines.training.processes import supervisor
from pipelines.training.processes.local_executor import LocalExecutor
from pipelines.training.processes.supervisor import DiedError, shares

from .small_tasks import die, die_once, double, fail_in, fill_the_disk, meet, pid, refuse, sleep

ROOT = Path(__file__).parents[5]
UNLOADED = """
from pipelines.core import frameworks
frameworks.load = lambda: None
from pipelines.training.processes import local_executor
local_executor.perform(local_executor.WorkerTask, local_executor.act)
"""


@pytest.fixture
def said():
    return []


@pytest.fixture
def start(tmp_path, monkeypatch, said):
    """A function that makes an executor; `said` holds its messages."""
    popen = supervisor.subprocess.Popen

    def unloaded(words, env, **options):
        return popen([sys.executable, "-c", UNLOADED, words[-1]], env={**env, "PYTHONPATH": str(ROOT)}, **options)

    monkeypatch.setattr(supervisor.subprocess, "Popen", unloaded)
    return lambda workers=1: LocalExecutor(tmp_path, workers, said.append)


def outcomes(executor, *tasks):
    """Runs tasks (key, task, function) as a driver does; returns their outcomes by key."""
    waiting, running, ended = list(tasks), 0, {}
    until = time.monotonic() + 60
    while (waiting or running) and time.monotonic() < until:
        while waiting and running < executor.capacity():
            executor.submit(*waiting.pop(0))
            running += 1
        for outcome in executor.finished(0.05):
            assert outcome.key not in ended
            ended[outcome.key] = outcome
            running -= 1
    return ended


def results(executor, *tasks):
    found = outcomes(executor, *tasks)
    assert {outcome.error for outcome in found.values()} == {None}
    return {key: outcome.result for key, outcome in found.items()}


def test_tasks_run_side_by_side_each_on_its_share_of_the_cores(start, tmp_path):
    (tmp_path / "met").mkdir()
    with start(workers=2) as executor:
        found = results(executor, *((name, tmp_path / "met" / name, meet) for name in "ab"))
    assert sorted(found.values()) == sorted(shares(sorted(os.sched_getaffinity(0)), 2))


def test_the_task_of_a_process_that_died_runs_again(start, tmp_path, said):
    with start() as executor:
        assert results(executor, ("a", tmp_path / "mark", die_once), ("b", 2, double)) == {"a": "lived", "b": 4}
    log = tmp_path / "logs" / "worker-0.log"
    assert said == [f"worker-0 died (killed by SIGKILL) and is restarted; its output is in {log}"]


def test_a_task_that_kills_its_processes_fails_and_others_run(start, said):
    with start() as executor:
        found = outcomes(executor, ("a", None, die), ("b", 2, double))
    assert found["a"].error == f"each of {ATTEMPTS} workers that ran it died or hung"
    assert found["b"].result == 4
    assert len(said) == ATTEMPTS


def test_several_tasks_that_kill_their_processes_do_not_end_the_others(start):
    with start() as executor:
        found = outcomes(executor, ("a", 2, double), ("b", None, die), ("c", None, die), ("d", 3, double))
    assert [found[key].lost for key in "abcd"] == [False, True, True, False]


def test_a_machine_on_which_no_process_survives_ends_all_tasks(start):
    with start() as executor, pytest.raises(DiedError, match="worker-0 died 5 times in a row"):
        outcomes(executor, *((key, None, die) for key in "abc"))


def test_a_task_that_fails_because_of_its_process_starts_again_in_a_fresh_one(start, said, tmp_path):
    with start() as executor:
        found = results(executor, ("a", [tmp_path / f"{attempt}" for attempt in range(ATTEMPTS - 1)], fail_in))
    assert len({*found["a"]}) == ATTEMPTS
    assert said == ["a has failed and starts again in a fresh process: out of memory"] * (ATTEMPTS - 1)


def test_a_task_that_fails_in_every_process_has_its_last_error(start, said, tmp_path):
    with start() as executor:
        found = outcomes(
            executor, ("a", [tmp_path / f"{attempt}" for attempt in range(ATTEMPTS)], fail_in), ("b", 2, double)
        )
    assert (found["a"].error, found["a"].lost) == ("out of memory", True)
    assert found["b"].result == 4


def test_a_process_is_replaced_after_some_tasks_without_a_word(start, monkeypatch, said):
    monkeypatch.setattr(module, "FRESH", 2)
    with start() as executor:
        found = results(executor, *((f"{number}", None, pid) for number in range(5)))
    pids = [found[f"{number}"] for number in range(5)]
    assert pids[0] == pids[1] != pids[2] == pids[3] != pids[4]
    assert said == []


def test_an_error_of_a_task_is_its_outcome(start, said):
    with start() as executor:
        found = outcomes(executor, ("a", "dead gates", refuse), ("b", None, double))
    assert found["a"].error == "dead gates"
    assert found["b"].error.startswith("Traceback")
    assert said == []


def test_a_full_disk_ends_all_tasks(start):
    with start() as executor, pytest.raises(UserError, match=r"the disk is full .*No space left.* repeat the command"):
        outcomes(executor, ("a", None, fill_the_disk), ("b", 2, double))


def test_processes_end_with_the_executor(start):
    with start(workers=2) as executor:
        outcomes(executor, ("a", 2, double))
        executor.submit("b", 600, sleep)
    assert all(worker.process.returncode for worker in executor._workers)


def test_a_process_ends_with_its_parent_in_the_middle_of_a_task(start):
    with start() as executor:
        outcomes(executor, ("a", 2, double))
        executor.submit("b", 600, sleep)
        process = executor._workers[0].process
        # The system does so when a process dies.
        process.stdin.close()
        assert process.wait(60) == 1
