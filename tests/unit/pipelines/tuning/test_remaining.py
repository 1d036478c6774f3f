from dataclasses import replace

import pytest

from pipelines.tuning.remaining import pace, time_left
from pipelines.tuning.table import summary

from .plans import toy_plan, toy_state, toy_trial

RUNNING = toy_trial(2, status="running", seconds=0.0, since=100.0)
STATE = toy_state(
    toy_trial(0, 0.5, seconds=10.0),
    toy_trial(1, status="failed", reason="dead gates: all", seconds=20.0),
    RUNNING,
    over=False,
)


def test_the_time_left_counts_what_runs():
    # Two done at 15 s each; six to go, of which one has run for 5 s.
    assert time_left(toy_plan(trials=8), STATE, 1, 105.0) == 6 * 15 - 5
    assert time_left(toy_plan(trials=8), STATE, 2, 105.0) == (6 * 15 - 5) / 2


def test_nothing_is_promised_before_a_trial_is_done():
    assert time_left(toy_plan(trials=8), toy_state(RUNNING, over=False), 1, 105.0) is None


def test_the_time_left_of_hyperband_is_that_of_the_epochs_left():
    plan = toy_plan("hyperband", trials=None, epochs=3)
    # An epoch takes 10 s and a start 2 s. Of trials of 1, 1, 1, 2, 3 and 3 epochs four are done or begun.
    done = [replace(toy_trial(number, 0.5, seconds=12.0), epochs=1) for number in range(3)]
    left = time_left(plan, toy_state(*done, over=False), 1, 0.0)
    assert left == pytest.approx(12 * (2 + 3 + 3))
    goes_on = replace(toy_trial(3, 0.6, seconds=22.0), epochs=3, before=1, earlier="0")
    begun = replace(toy_trial(4, status="running", seconds=0.0, since=100.0), epochs=3)
    state = toy_state(*done, goes_on, begun, over=False)
    assert time_left(plan, state, 1, 107.0) == pytest.approx(32 + 32 - 7)
    assert "4 of 6 trials" in summary(plan, state, 1, 107.0)


def test_what_cannot_be_told_apart_is_the_epochs():
    assert pace([2, 2], [10.0, 14.0]) == (0.0, 6.0)
    # A longer trial that took less time is chance.
    assert pace([1, 3], [9.0, 7.0]) == (0.0, 3.0)
