"""Progress of many runs, on a terminal and elsewhere; the runs are simulated and take no time."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import pytest
from pydantic import BaseModel
from rich.console import Console

from pipelines.core.errors import UserError
from pipelines.training.processes import pool
from tests.executors import Deserted, OnNode, Shuffled

STEPS = 1000
"""Steps of a run, one per second."""


class Member:
    """A run that takes `slow` seconds per step and layer, and reports every `tells` steps; it is its own task."""

    def __init__(self, folder, clock, *, start=0, depth=None, tells=1, slow=1):
        self.name, self.folder, self._clock, self._start = folder.name, folder, clock, start
        self.task, self._tells = self, tells
        self.config = SimpleNamespace(epochs=1, model=SimpleNamespace(depth=depth))
        self._each = slow * (depth or 1)
        folder.mkdir()

    def model_copy(self, update):
        assert update["cores"]
        return self

    @property
    def step(self):
        done = min(STEPS, max(0, int((self._clock.now - self._start) / self._each)))
        return done // self._tells * self._tells

    @property
    def seconds(self):
        return float(self.step * self._each)

    @property
    def done(self):
        return self.step == STEPS


class FakeSupervisor:
    def __init__(self, members, say, then):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def works(self):
        return True


@pytest.fixture
def seen(monkeypatch, tmp_path):
    """A function that trains runs, given the arguments of each `Member`, and returns the output."""
    clock = SimpleNamespace(now=0.0)
    time = SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + 10))
    members = {}

    def open_run(folder):
        member = members[folder.name]
        record = SimpleNamespace(step=member.step, seconds=member.seconds, steps_per_epoch=STEPS)
        return SimpleNamespace(record=record, config=SimpleNamespace(epochs=1))

    monkeypatch.setattr(pool, "time", time)
    monkeypatch.setattr(pool, "open_run", open_run)
    monkeypatch.setattr(pool, "Supervisor", FakeSupervisor)

    def run(runs, workers=1, terminal=False):
        members.update({name: Member(tmp_path / name, clock, **what) for name, what in runs.items()})
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=100)
        pool.train_all(
            list(members.values()), workers=workers, console=console, label="study", result=lambda run: "97 %"
        )
        return file.getvalue()

    return run


ONE_BY_ONE = {"a": {}, "b": {"start": STEPS}}


def test_without_a_terminal_the_time_left_is_printed_periodically(seen):
    lines = seen(ONE_BY_ONE).splitlines()
    assert lines[:3] == [
        "study: 0 of 2 runs, about 28:20 left",
        "study: 0 of 2 runs, about 23:20 left",
        "study: 0 of 2 runs, about 18:20 left",
    ]
    assert lines[3] == "a: 97 %; 1 of 2 runs, about 16:40 left"
    assert lines[-1] == "b: 97 %; 2 of 2 runs"
    assert len(lines) == 2 + 6


def test_a_terminal_has_a_bar_instead(seen):
    shown = seen(ONE_BY_ONE, terminal=True)
    assert "study: " not in shown
    assert "1 of 2 runs, about 16:40 left" in shown


def test_deep_nets_are_expected_to_take_longer(seen):
    lines = seen({"a": {"depth": 1}, "b": {"depth": 10, "start": STEPS}}).splitlines()
    assert lines[0] == "study: 0 of 2 runs, about 2:58:20 left"
    assert lines[3] == "a: 97 %; 1 of 2 runs, about 2:46:40 left"


def test_the_time_left_is_that_of_the_last_worker(seen):
    lines = seen({"a": {"depth": 1}, "b": {"depth": 2}, "c": {"depth": 4, "start": STEPS}}, workers=2).splitlines()
    # With two workers, the first one to be free takes the third run.
    assert lines[0] == "study: 0 of 3 runs, about 1:18:20 left"
    assert "b: 97 %; 2 of 3 runs, about 50:00 left" in lines


def test_the_time_left_falls_between_the_ends_of_long_epochs(seen):
    lines = seen({"a": {"depth": 10, "tells": 200}}).splitlines()
    assert [line.partition("about ")[2] for line in lines[6:10]] == [
        "2:11:40 left",
        "2:06:40 left",
        "2:01:40 left",
        "1:56:40 left",
    ]


def test_a_slow_run_is_estimated_by_its_own_pace(seen):
    lines = seen({"a": {}, "b": {"tells": 100, "slow": 8}}, workers=2).splitlines()
    # Until the slow run has reported anything, it is assumed to be as fast as the other.
    assert lines[0] == "study: 0 of 2 runs, about 28:20 left"
    assert "a: 97 %; 1 of 2 runs, about 1:56:40 left" in lines
    assert lines[4] == "study: 1 of 2 runs, about 1:53:20 left"


class Run(BaseModel):
    """A task of an executor."""

    folder: Path
    url: str | None = None
    config: ClassVar = SimpleNamespace(epochs=1, model=SimpleNamespace(depth=None))


def make_folder(run):
    run.folder.mkdir()


def refuse(run):
    raise UserError("it cannot be trained")


@pytest.mark.parametrize("capacity", [1, 3])
def test_an_executor_trains_every_run_once(tmp_path, monkeypatch, capacity):
    record = SimpleNamespace(step=1, seconds=1.0, steps_per_epoch=1)
    monkeypatch.setattr(pool, "INTERVAL", 0.0)
    monkeypatch.setattr(pool, "open_run", lambda _: SimpleNamespace(record=record, config=SimpleNamespace(epochs=1)))
    output, executor = io.StringIO(), Shuffled(capacity=capacity)
    members = [SimpleNamespace(name=name, task=Run(folder=tmp_path / name)) for name in "abcde"]
    remote = pool.Remote(executor, make_folder)
    pool.train_all(
        members, workers=9, console=Console(file=output), label="study", result=lambda _: "97%", remote=remote
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == [*"abcde"]
    assert executor.keys == [*"abcde"]
    lines = output.getvalue().splitlines()
    assert sorted(line[:6] for line in lines) == [f"{name}: 97%" for name in "abcde"]
    assert lines[-1].endswith("5 of 5 runs")


def test_a_run_that_an_executor_cannot_train_ends_all(tmp_path):
    members = [SimpleNamespace(name=name, task=Run(folder=tmp_path / name)) for name in "ab"]
    remote = pool.Remote(Shuffled(), refuse)
    with pytest.raises(UserError, match=r"[ab]: it cannot be trained"):
        pool.train_all(members, workers=1, console=Console(quiet=True), label="", result=lambda _: "", remote=remote)


def test_an_error_of_a_run_names_its_node(tmp_path):
    members = [SimpleNamespace(name="a", task=Run(folder=tmp_path / "a"))]
    remote = pool.Remote(OnNode(), refuse)
    with pytest.raises(UserError, match=r"^a: it cannot be trained.* This was on the node node3\.$"):
        pool.train_all(members, workers=1, console=Console(quiet=True), label="", result=lambda _: "", remote=remote)


def test_the_last_runs_end_with_an_error_if_no_machine_is_left(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "INTERVAL", 0.0)
    members = [SimpleNamespace(name=name, task=Run(folder=tmp_path / name)) for name in "ab"]
    remote = pool.Remote(Deserted(), make_folder)
    with pytest.raises(UserError, match="no machine is left"):
        pool.train_all(members, workers=1, console=Console(quiet=True), label="", result=lambda _: "", remote=remote)
    assert remote.executor.keys == [*"ab"]
