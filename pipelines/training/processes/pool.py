"""A pool of processes that train many runs, showing progress and the time left."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, cast

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from pipelines.core import environment
from pipelines.core.console import say
from pipelines.core.durations import Job, JobTracker, Pace, clock
from pipelines.core.errors import UserError
from pipelines.core.executor import Executor
from pipelines.core.ownership import claim
from pipelines.core.run import Run, open_run
from pipelines.core.sync import place_of, refresh
from pipelines.core.url import Url
from pipelines.training.processes.supervisor import Member, Supervisor, shares
from pipelines.training.processes.train import TrainTask

INTERVAL = 0.2
"""Seconds between two checks of the runs."""
REPORT_INTERVAL = 300.0
"""Seconds between two lines of progress where there is no bar."""


class Remote(NamedTuple):
    """Runs as tasks of an executor, in place of processes of this machine."""

    executor: AbstractContextManager[Executor]
    """The executor, which is opened here."""
    perform: Callable[[Any], None]
    """Performs a task; see `pipelines.core.executor.Executor.submit`."""


def train_all(
    members: Sequence[Member],
    *,
    workers: int,
    console: Console,
    label: str,
    result: Callable[[Run], str],
    remote: Remote | None = None,
) -> None:
    """Trains runs to their end, each in its own process; the next starts as soon as one ends.

    Args:
        members: one process per run, with a `TrainTask`; their cores are assigned here.
        workers: number of runs at the same time on this machine.
        console: where to print a line per finished run, and a bar on a terminal or occasional lines elsewhere.
        label: text before the bar, or at the start of those lines ("retrains").
        result: describes the result of a finished run.
        remote: trains the runs elsewhere; None for this machine.

    Raises:
        UserError: a run cannot be trained.
        StoppedError: a signal came, raised by `signals.raised`; all processes have ended.
    """
    columns = (TextColumn(label), BarColumn(bar_width=None), TextColumn("{task.fields[far]}"))
    bar = Bar(*columns, console=console, expand=True, disable=not console.is_terminal)
    total = sum(map(_work, members))
    task = bar.add_task("", total=total, far="")
    left, reported = list(members), time.monotonic()
    processes = _submitted(members, remote) if remote else _supervised(members, workers, console)
    with bar, processes as (places, find_ended):
        tracker = JobTracker(_jobs(members), places, reported)
        while left:
            names = find_ended()
            now = time.monotonic()
            ended = [member for member in left if member.name in names]
            left = [member for member in left if member.name not in names]
            jobs = _jobs(left)
            far = f"{len(members) - len(left)} of {len(members)} runs"
            seconds = tracker.time_left(jobs, now)
            if left and seconds is not None:
                far += f", about {clock(seconds)} left"
            for member in ended:
                say(console, f"{member.name}: {result(open_run(member.task.folder))}; {far}")
            bar.update(task, completed=total - sum(job.work for job in jobs.values()), far=far)
            if left and bar.disable and now - reported >= REPORT_INTERVAL:
                say(console, f"{label}: {far}")
                reported = now
            time.sleep(INTERVAL)


Processes = tuple[int, Callable[[], set[str]]]
"""Number of runs at the same time, and a function that returns the names of the runs that have ended so far."""


@contextmanager
def _supervised(members: Sequence[Member], workers: int, console: Console) -> Iterator[Processes]:
    """Starts processes on this machine, each on its share of the cores."""
    cores = shares(environment.available(), min(workers, len(members)))
    for member, share in zip(members, cores, strict=False):
        member.task = member.task.model_copy(update={"cores": share})
    _claim(members)
    with Supervisor(members[:workers], lambda line: say(console, line), then=members[workers:]) as supervisor:

        def find_ended() -> set[str]:
            supervisor.works()
            return {member.name for member in members if member.done}

        yield workers, find_ended


@contextmanager
def _submitted(members: Sequence[Member], remote: Remote) -> Iterator[Processes]:
    """Gives the runs to an executor, as many at a time as it has room for."""
    waiting, running, ended = list(members), dict[str, Member](), set[str]()
    with remote.executor as executor:
        _claim(members)

        def find_ended() -> set[str]:
            # Asked even if no run is waiting: it raises an error if the running ones have no machine left.
            capacity = executor.capacity()
            while waiting and len(running) < capacity:
                member = waiting.pop(0)
                running[member.name] = member
                place = place_of(member.task.folder)
                url = str(place) if isinstance(place, Url) else None
                executor.submit(member.name, member.task.model_copy(update={"url": url}), remote.perform)
            for outcome in executor.finished(0.0):
                if failure := outcome.failure():
                    raise UserError(f"{outcome.key}: {failure}")
                refresh(running.pop(outcome.key).task.folder)
                ended.add(outcome.key)
            return ended

        yield executor.capacity(), find_ended


def _claim(members: Sequence[Member]) -> None:
    """Claims the folder of the command, now that its machines are known to answer; runs that are done are skipped."""
    for member in members:
        claim(member.task.folder)


def _work(member: Member) -> float:
    """Estimates the work of a run by its epochs and layers: in most studies, all layers have the same size."""
    config = cast(TrainTask, member.task).config
    return float(config.epochs * (config.model.depth or 1))


def _jobs(members: Sequence[Member]) -> dict[str, Job]:
    return {member.name: _job(member) for member in members}


def _job(member: Member) -> Job:
    """Returns the remaining work of a run, and its pace so far."""
    work = _work(member)
    if not member.task.folder.exists():
        return Job(work)
    run = open_run(member.task.folder)
    far = run.record.step / (run.config.epochs * run.record.steps_per_epoch)
    return Job(work * (1 - far), Pace(0.0, run.record.seconds / (work * far)) if far else None)
