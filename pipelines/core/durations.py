"""Durations: their format, and estimates of the time left."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import linear_regression
from typing import NamedTuple


def clock(seconds: float) -> str:
    """Formats a duration as hours, minutes and seconds, without hours if there are none.

    Example:
        clock(3661.2)  # "1:01:01"
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def remaining(seconds: float, done: float, total: float) -> float | None:
    """Estimates the time left of one job from its average pace so far.

    Args:
        seconds: seconds since the job began.
        done: work done since then, in any unit.
        total: work from then to the end, in the same unit.

    Returns:
        The seconds; None if nothing is done yet.

    Example:
        remaining(60.0, done=2, total=6)  # 120.0
    """
    return max(0.0, Pace(0.0, seconds / done).seconds(total - done)) if done else None


class Pace(NamedTuple):
    """The seconds that a job takes to start, and the seconds per unit of its work."""

    start: float
    unit: float

    def seconds(self, work: float) -> float:
        """Returns the seconds that a job of this much work takes."""
        return self.start + self.unit * work


def fitted_pace(work: Sequence[float], seconds: Sequence[float]) -> Pace:
    """Fits a pace to finished jobs by least squares, with a start of 0 if the jobs do not determine it.

    Args:
        work: work of each job, in any unit.
        seconds: duration of each job.

    Example:
        fitted_pace([1, 1, 3], [6.0, 6.0, 8.0])  # about Pace(5.0, 1.0)
    """
    if len(set(work)) > 1:
        unit, start = linear_regression(work, seconds)
        if unit >= 0 and start >= 0:
            return Pace(start, unit)
    return Pace(0.0, linear_regression([*work, 0], [*seconds, 0], proportional=True).slope)


@dataclass(frozen=True)
class Job:
    """An unfinished job, running or waiting.

    Args:
        work: its remaining work, in any unit that all jobs share.
        pace: its own pace; None for the common pace of all jobs.
        elapsed: seconds already spent on the remaining work.
    """

    work: float
    pace: Pace | None = None
    elapsed: float = 0.0


def time_left(jobs: Iterable[Job], workers: int, pace: Pace) -> float:
    """Estimates the time until all jobs are done, if each worker takes the next one as soon as it is free.

    Args:
        jobs: jobs in the order in which they start, running ones first.
        workers: number of jobs at the same time, at least 1.
        pace: pace of jobs without their own.

    Returns:
        The seconds.

    Example:
        time_left([Job(10.0), Job(20.0), Job(5.0)], 2, Pace(0.0, 1.0))  # 20.0
    """
    busy = [0.0] * workers
    for job in jobs:
        busy[busy.index(min(busy))] += max(0.0, (job.pace or pace).seconds(job.work) - job.elapsed)
    return max(busy)


class JobTracker:
    """Estimates the time left for jobs that report progress only occasionally, such as once per epoch.

    Jobs without their own pace get the average pace, which includes the time between jobs.

    Args:
        jobs: the unfinished jobs by name, in the order in which they start.
        workers: number of jobs at the same time.
        now: the time, in seconds.

    Example:
        tracker = JobTracker({"a": Job(10.0), "b": Job(10.0)}, workers=1, now=0.0)
        tracker.time_left({"a": Job(5.0), "b": Job(10.0)}, now=60.0)  # 120.0
    """

    def __init__(self, jobs: Mapping[str, Job], workers: int, now: float) -> None:
        self._workers = workers
        self._work = {name: job.work for name, job in jobs.items()}
        self._moved: dict[str, float] = {}
        self._looked = now
        self._busy = self._done = 0.0
        self._average = Pace(0.0, 0.0)
        self._start(jobs, now)

    def time_left(self, jobs: Mapping[str, Job], now: float) -> float | None:
        """Returns the seconds until the last worker ends.

        Args:
            jobs: the unfinished jobs with their remaining work, in the same order.
            now: the time, in seconds.

        Returns:
            The seconds; None if a job has no pace and no job has progressed since the start.
        """
        self._busy += (now - self._looked) * min(self._workers, len(self._work))
        self._looked = now
        if self._move(jobs, now):
            self._average = Pace(0.0, self._busy / self._done)
        self._start(jobs, now)
        if not self._done and any(job.pace is None for job in jobs.values()):
            return None
        since = {name: now - self._moved.get(name, now) for name in jobs}
        waiting = [replace(job, elapsed=since[name]) for name, job in jobs.items()]
        return time_left(waiting, self._workers, self._average)

    def _move(self, jobs: Mapping[str, Job], now: float) -> bool:
        """Records which jobs have progressed since the last call; returns whether any has."""
        left = {name: job.work for name, job in jobs.items()}
        moved = [name for name, work in self._work.items() if left.get(name, 0.0) < work]
        self._done += sum(self._work[name] - left.get(name, 0.0) for name in moved)
        self._moved |= dict.fromkeys(moved, now)
        self._work = left
        return bool(moved)

    def _start(self, jobs: Mapping[str, Job], now: float) -> None:
        """Records the start of the first jobs, which are the running ones."""
        for name in list(jobs)[: self._workers]:
            self._moved.setdefault(name, now)
