"""What is seen of many runs, on a terminal and elsewhere, with runs that are no processes and take no time."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from pipelines.processes import together

STEPS = 1000
"""Of a run, one a second."""


class Member:
    """A run that is started when the one before it is done; it is its own task."""

    def __init__(self, folder, clock, start):
        self.name, self.folder, self._clock, self._start = folder.name, folder, clock, start
        self.task = self
        folder.mkdir()

    def model_copy(self, update):
        assert update["cores"]
        return self

    @property
    def step(self):
        return min(STEPS, max(0, int(self._clock.now - self._start)))

    @property
    def done(self):
        return self.step == STEPS


class Crew:
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
    """A function that trains two runs, one after the other, and returns what was written."""
    clock = SimpleNamespace(now=0.0)
    time = SimpleNamespace(monotonic=lambda: clock.now, sleep=lambda seconds: setattr(clock, "now", clock.now + 10))
    members = {name: Member(tmp_path / name, clock, STEPS * number) for number, name in enumerate("ab")}

    def open_run(folder):
        record = SimpleNamespace(step=members[folder.name].step, steps_per_epoch=STEPS)
        return SimpleNamespace(record=record, config=SimpleNamespace(epochs=1))

    monkeypatch.setattr(together, "time", time)
    monkeypatch.setattr(together, "open_run", open_run)
    monkeypatch.setattr(together, "Crew", Crew)

    def run(terminal):
        file = io.StringIO()
        console = Console(file=file, force_terminal=terminal, width=100)
        runs = list(members.values())
        together.train_all(runs, workers=1, console=console, doing="study", found=lambda run: "97 %")
        return file.getvalue()

    return run


def test_without_a_terminal_what_is_left_is_told_from_time_to_time(seen):
    lines = seen(False).splitlines()
    assert lines[:3] == [
        "study: 0 of 2 runs, about 28:20 left",
        "study: 0 of 2 runs, about 23:20 left",
        "study: 0 of 2 runs, about 18:20 left",
    ]
    assert lines[3] == "a: 97 %; 1 of 2 runs, about 16:40 left"
    assert lines[-1] == "b: 97 %; 2 of 2 runs"
    assert len(lines) == 2 + 6


def test_a_terminal_has_a_bar_instead(seen):
    shown = seen(True)
    assert "study: " not in shown
    assert "1 of 2 runs, about 16:40 left" in shown
