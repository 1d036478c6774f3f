from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.training.processes.time_left import Rest, TimeLeft

PACES = st.lists(st.tuples(st.floats(1, 1e4), st.floats(1e-3, 1e3)), min_size=1, max_size=6)


def rests(paces):
    return [Rest(str(place), work, pace) for place, (work, pace) in enumerate(paces)]


def test_nothing_is_told_before_a_run_moved():
    unknown = [Rest("a", 10.0), Rest("b", 10.0, 2.0)]
    assert TimeLeft(unknown, 1, 0.0).seconds(unknown, 60.0) is None


def test_runs_without_a_pace_take_that_of_all_with_what_is_not_training():
    left = TimeLeft([Rest("a", 10.0), Rest("b", 10.0)], 1, 0.0)
    # Of the minute half was training.
    assert left.seconds([Rest("a", 5.0, 6.0), Rest("b", 10.0)], 60.0) == 5 * 6 + 10 * 12


@given(PACES, st.integers(1, 4), st.floats(0, 100))
def test_runs_that_go_on_are_told_at_once_and_time_goes_on(paces, workers, passed):
    known = rests(paces)
    left = TimeLeft(known, workers, 0.0)
    first, later = left.seconds(known, 0.0), left.seconds(known, passed)
    seconds = [work * pace for work, pace in paces]
    assert max(*seconds, sum(seconds) / workers) * (1 - 1e-9) <= first <= sum(seconds) * (1 + 1e-9)
    assert 0 <= later <= first
    if workers == 1:
        assert first == pytest.approx(sum(seconds))
        assert later == pytest.approx(sum(seconds) - min(passed, seconds[0]))


@given(PACES, st.integers(1, 4))
def test_no_time_is_left_when_all_is_done(paces, workers):
    known = rests(paces)
    left = TimeLeft(known, workers, 0.0)
    assert left.seconds([replace(rest, work=0.0) for rest in known], 10.0) == 0
    assert left.seconds([], 20.0) == 0
