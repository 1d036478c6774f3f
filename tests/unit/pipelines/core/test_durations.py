from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.durations import Job, JobTracker, Pace, clock, fitted_pace, remaining, time_left

PACES = st.lists(st.tuples(st.floats(1, 1e4), st.floats(1e-3, 1e3)), min_size=1, max_size=6)


def jobs_with(paces):
    return {str(place): Job(work, Pace(0.0, unit)) for place, (work, unit) in enumerate(paces)}


@pytest.mark.parametrize(("seconds", "shown"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661.2, "1:01:01")])
def test_a_clock_has_hours_only_where_there_are_some(seconds, shown):
    assert clock(seconds) == shown


def test_one_job_continues_at_its_average_pace():
    assert remaining(60.0, done=2, total=6) == 120.0
    assert remaining(60.0, done=0, total=6) is None
    # An estimated total may be too low.
    assert remaining(60.0, done=7, total=6) == 0.0


def test_startup_is_separated_from_work_where_possible():
    assert fitted_pace([1, 1, 3], [6.0, 6.0, 8.0]) == pytest.approx((5.0, 1.0))
    assert fitted_pace([2, 2], [10.0, 14.0]) == (0.0, 6.0)
    # A longer trial that took less time is noise.
    assert fitted_pace([1, 3], [9.0, 7.0]) == (0.0, 3.0)


def test_a_free_worker_takes_the_next_job():
    jobs = [Job(10.0), Job(20.0), Job(15.0)]
    assert time_left(jobs, 1, Pace(0.0, 1.0)) == 45.0
    assert time_left(jobs, 2, Pace(0.0, 1.0)) == 25.0
    assert time_left(jobs, 3, Pace(2.0, 1.0)) == 22.0
    # One has a pace of its own, one takes longer than expected.
    assert time_left([Job(10.0, Pace(0.0, 2.0), elapsed=5.0), Job(1.0, elapsed=9.0)], 1, Pace(0.0, 1.0)) == 15.0


def test_there_is_no_estimate_before_a_job_progresses():
    unknown = {"a": Job(10.0), "b": Job(10.0, Pace(0.0, 2.0))}
    assert JobTracker(unknown, 1, 0.0).time_left(unknown, 60.0) is None


def test_jobs_without_a_pace_take_the_average_including_other_time():
    tracker = JobTracker({"a": Job(10.0), "b": Job(10.0)}, 1, 0.0)
    # Half of the minute was training.
    assert tracker.time_left({"a": Job(5.0, Pace(0.0, 6.0)), "b": Job(10.0)}, 60.0) == 5 * 6 + 10 * 12


@given(PACES, st.integers(1, 4), st.floats(0, 100))
def test_resumed_jobs_have_an_estimate_at_once_that_falls_with_time(paces, workers, passed):
    known = jobs_with(paces)
    tracker = JobTracker(known, workers, 0.0)
    first, later = tracker.time_left(known, 0.0), tracker.time_left(known, passed)
    seconds = [work * unit for work, unit in paces]
    assert max(*seconds, sum(seconds) / workers) * (1 - 1e-9) <= first <= sum(seconds) * (1 + 1e-9)
    assert 0 <= later <= first
    if workers == 1:
        assert first == pytest.approx(sum(seconds))
        assert later == pytest.approx(sum(seconds) - min(passed, seconds[0]))


@given(PACES, st.integers(1, 4))
def test_no_time_is_left_when_all_is_done(paces, workers):
    known = jobs_with(paces)
    tracker = JobTracker(known, workers, 0.0)
    assert tracker.time_left({name: replace(job, work=0.0) for name, job in known.items()}, 10.0) == 0
    assert tracker.time_left({}, 20.0) == 0
