"""A pool of processes that train many runs, with their progress and the time left."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from pipelines.core import environment
from pipelines.core.durations import clock, makespan
from pipelines.core.run import Run, open_run
from pipelines.training.processes.supervisor import Member, Supervisor, shares
from pipelines.training.processes.train import TrainTask

INTERVAL = 0.2
"""Seconds between two checks of the runs."""
REPORT_INTERVAL = 300.0
"""Seconds between two lines of progress, where there is no bar."""


@dataclass(frozen=True)
class Rest:
    """The remaining work of a run.

    Args:
        name: name of the run.
        work: in any unit that all runs share.
        pace: seconds per unit so far; None before the first.
    """

    name: str
    work: float
    pace: float | None = None


class TimeLeft:
    """Estimates the time left, from the pace of each run, or from the average pace until it has one.

    Args:
        rests: remaining work of the runs, in the order of training.
        workers: number of runs at the same time.
        now: the time, in seconds.

    Example:
        left = TimeLeft([Rest("a", 10.0), Rest("b", 10.0)], workers=1, now=0.0)
        left.seconds([Rest("a", 5.0, pace=12.0), Rest("b", 10.0)], now=60.0)  # 180.0
    """

    def __init__(self, rests: Sequence[Rest], workers: int, now: float) -> None:
        self._workers = workers
        self._rests = {rest.name: rest.work for rest in rests}
        self._moved: dict[str, float] = {}
        self._looked = now
        self._busy = self._done = self._pace = 0.0
        self._start(rests, now)

    def seconds(self, rests: Sequence[Rest], now: float) -> float | None:
        """Returns the seconds until the last worker ends.

        Args:
            rests: remaining work of the unfinished runs, in the same order.
            now: the time, in seconds.

        Returns:
            The seconds; None if a run has no pace, and no run has progressed since the start.
        """
        self._busy += (now - self._looked) * min(self._workers, len(self._rests))
        self._looked = now
        if self._move(rests, now):
            # Including the start of processes and their evaluations.
            self._pace = self._busy / self._done
        self._start(rests, now)
        if not self._done and any(rest.pace is None for rest in rests):
            return None
        # A run progresses at the end of an epoch, which may take many minutes.
        since = {rest.name: now - self._moved.get(rest.name, now) for rest in rests}
        seconds = [max(0.0, rest.work * (rest.pace or self._pace) - since[rest.name]) for rest in rests]
        return makespan(seconds, self._workers)

    def _move(self, rests: Sequence[Rest], now: float) -> bool:
        """Notes which runs progressed since the last call; returns whether any did."""
        left = {rest.name: rest.work for rest in rests}
        moved = [name for name, work in self._rests.items() if left.get(name, 0.0) < work]
        self._done += sum(self._rests[name] - left.get(name, 0.0) for name in moved)
        self._moved |= dict.fromkeys(moved, now)
        self._rests = left
        return bool(moved)

    def _start(self, rests: Sequence[Rest], now: float) -> None:
        """Notes the start of the first runs, which are those in training."""
        for rest in rests[: self._workers]:
            self._moved.setdefault(rest.name, now)


def train_all(
    members: Sequence[Member],
    *,
    workers: int,
    console: Console,
    label: str,
    result: Callable[[Run], str],
) -> None:
    """Trains runs to their end, each in its own process; the next starts as soon as one ends.

    Args:
        members: one per run, with a `TrainTask`; their cores are assigned here.
        workers: number of runs at the same time.
        console: for a line per finished run, and a bar on a terminal or a line from time to time elsewhere.
        label: stands before the bar, or begins the line ("retrains").
        result: describes the result of a finished run.

    Raises:
        UserError: a run cannot be trained.
        StoppedError: a signal came, raised by `signals.raised`; all processes have ended.
    """
    cores = shares(environment.available(), min(workers, len(members)))
    for member, share in zip(members, cores, strict=False):
        member.task = member.task.model_copy(update={"cores": share})
    columns = (TextColumn(label), BarColumn(bar_width=None), TextColumn("{task.fields[far]}"))
    bar = Bar(*columns, console=console, expand=True, disable=not console.is_terminal)
    total = sum(map(_work, members))
    task = bar.add_task("", total=total, far="")
    left, reported = list(members), time.monotonic()
    time_left = TimeLeft(list(map(_rest, members)), workers, reported)
    with bar, Supervisor(members[:workers], lambda line: say(console, line), then=members[workers:]) as supervisor:
        while left:
            supervisor.works()
            now = time.monotonic()
            ended = [member for member in left if member.done]
            left = [member for member in left if member not in ended]
            rests = list(map(_rest, left))
            far = f"{len(members) - len(left)} of {len(members)} runs"
            seconds = time_left.seconds(rests, now)
            if left and seconds is not None:
                far += f", about {clock(seconds)} left"
            for member in ended:
                say(console, f"{member.name}: {result(open_run(member.task.folder))}; {far}")
            bar.update(task, completed=total - sum(rest.work for rest in rests), far=far)
            if left and bar.disable and now - reported >= REPORT_INTERVAL:
                say(console, f"{label}: {far}")
                reported = now
            time.sleep(INTERVAL)


def say(console: Console, line: str) -> None:
    """Prints a line verbatim, however long."""
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def _work(member: Member) -> float:
    """Estimates the work of a run by epochs and layers; in most studies all layers have the same size."""
    config = cast(TrainTask, member.task).config
    return float(config.epochs * (config.model.depth or 1))


def _rest(member: Member) -> Rest:
    """Returns the remaining work of a run."""
    work = _work(member)
    if not member.task.folder.exists():
        return Rest(member.name, work)
    run = open_run(member.task.folder)
    far = run.record.step / (run.config.epochs * run.record.steps_per_epoch)
    return Rest(member.name, work * (1 - far), run.record.seconds / (work * far) if far else None)
