"""Durations: their format, and that of many jobs."""

from collections.abc import Iterable


def clock(seconds: float) -> str:
    """Formats hours, minutes and seconds, without hours if there are none.

    Example:
        clock(3661.2)  # "1:01:01"
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def makespan(seconds: Iterable[float], workers: int) -> float:
    """Returns the seconds until all jobs are done, if each worker takes the next one as soon as it is free.

    Args:
        seconds: the duration of each job, in the order in which they start.
        workers: number of jobs at the same time, at least 1.

    Example:
        makespan([10.0, 20.0, 5.0], workers=2)  # 20.0
    """
    busy = [0.0] * workers
    for duration in seconds:
        busy[busy.index(min(busy))] += duration
    return max(busy)
