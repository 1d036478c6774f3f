"""The state of a search after each proposal and each result; the test sets the clock."""

import json

import pytest

from pipelines.core.errors import UserError
from pipelines.tuning import ask_tell
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.search_state import read

from .in_memory import drawn
from .plans import ACCURACY, toy_plan


class Time:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Time()


@pytest.fixture
def opened(tmp_path, clock):
    """A function that begins or resumes a search of three trials."""
    return lambda: AskTell(toy_plan(trials=3), ACCURACY, tmp_path, clock)


def test_a_search_from_its_start_to_its_end(opened, tmp_path):
    search = opened()
    for score in (0.5, 0.9, 0.7):
        search.tell(search.ask().number, score)
        assert not read(tmp_path).over
    assert search.ask() is None
    state = read(tmp_path)
    assert search.over
    assert state.over
    assert [trial.score for trial in state.ranked] == [0.9, 0.7, 0.5]
    assert opened().over


def test_a_search_is_not_over_while_a_trial_runs(opened):
    search = opened()
    first, *others = [search.ask() for _ in range(3)]
    for trial in others:
        search.tell(trial.number, 0.5)
    assert search.ask() is None
    assert (search.over, search.running) == (False, 1)
    search.fail(first.number, "dead gates")
    assert search.ask() is None
    assert (search.over, search.running) == (True, 0)


def test_trials_that_ran_when_a_driver_died_come_first(opened, tmp_path):
    search = opened()
    one, other = search.ask(), search.ask()
    search = opened()
    assert search.running == 0
    again = [search.ask(), search.ask()]
    assert [(trial.number, drawn(trial.values)) for trial in again] == [
        (trial.number, drawn(trial.values)) for trial in (one, other)
    ]
    assert [trial.status for trial in read(tmp_path).trials] == ["running", "running"]
    assert search.ask().number not in (one.number, other.number)


def test_a_trial_that_is_not_taken_up_yet_waits(opened, tmp_path):
    search = opened()
    search.ask(), search.ask()
    opened().ask()
    assert [trial.status for trial in read(tmp_path).trials] == ["running", "waiting"]
    # However often.
    assert [opened().ask().number for _ in range(3)] == ["0", "0", "0"]


def test_seconds_are_those_of_all_attempts(opened, tmp_path, clock):
    search = opened()
    search.ask()
    clock.now += 10
    search.pause()
    assert read(tmp_path).trials[0].seconds == 10
    clock.now += 1000
    search = opened()
    trial = search.ask()
    clock.now += 5
    search.tell(trial.number, 0.5)
    assert read(tmp_path).trials[0].seconds == 15


def test_every_version_of_the_file_is_one_to_resume_from(opened, tmp_path, monkeypatch):
    versions = []
    write = ask_tell.write_text
    monkeypatch.setattr(ask_tell, "write_text", lambda path, text: (versions.append(text), write(path, text)))
    search = opened()
    search.tell(search.ask().number, 0.5)
    search.fail(search.ask().number, "dead gates")
    search.ask()
    monkeypatch.setattr(ask_tell, "write_text", write)
    assert len(versions) == 5
    for version in versions:
        (tmp_path / "oracle.json").write_text(version)
        search, numbers = opened(), []
        while trial := search.ask():
            numbers.append(trial.number)
            search.tell(trial.number, 0.5)
        assert len(numbers) == len(set(numbers))
        assert len(read(tmp_path).trials) == 3
        assert search.over


def test_a_damaged_state_is_reported(opened, tmp_path):
    opened().ask()
    file = tmp_path / "oracle.json"
    state = json.loads(file.read_text())
    del state["clock"]
    file.write_text(json.dumps(state))
    with pytest.raises(UserError, match=r"oracle\.json is damaged"):
        read(tmp_path)
