"""Trains many runs under a supervisor, some at the same time, and shows how far they are."""

import time
from collections.abc import Callable, Sequence
from typing import cast

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from pipelines.core import environment
from pipelines.core.durations import clock
from pipelines.core.run import Run, open_run
from pipelines.training.processes.supervisor import Member, Supervisor, shares
from pipelines.training.processes.time_left import Rest, TimeLeft
from pipelines.training.processes.train import TrainTask

LOOK = 0.2
"""Seconds between two looks at the runs."""
TOLD = 300.0
"""Seconds between two lines of what is left, where there is no bar."""


def train_all(
    members: Sequence[Member],
    *,
    workers: int,
    console: Console,
    doing: str,
    found: Callable[[Run], str],
) -> None:
    """Trains runs to their end, each in a process of its own; the next starts as soon as one ends.

    Args:
        members: one a run, with a `TrainTask`; their cores are decided here.
        workers: runs at the same time.
        console: for a line for each run, and a bar on a terminal or a line from time to time elsewhere.
        doing: what stands before the bar, or begins the line ("retrains").
        found: what is told of a run that is done.

    Raises:
        UserError: a run cannot be trained.
        StoppedError: a signal came, which `signals.raised` turned into it; all processes have ended.
    """
    cores = shares(environment.available(), min(workers, len(members)))
    for member, share in zip(members, cores, strict=False):
        member.task = member.task.model_copy(update={"cores": share})
    columns = (TextColumn(doing), BarColumn(bar_width=None), TextColumn("{task.fields[far]}"))
    bar = Bar(*columns, console=console, expand=True, disable=not console.is_terminal)
    total = sum(map(_work, members))
    task = bar.add_task("", total=total, far="")
    left, told = list(members), time.monotonic()
    time_left = TimeLeft(list(map(_rest, members)), workers, told)
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
                say(console, f"{member.name}: {found(open_run(member.task.folder))}; {far}")
            bar.update(task, completed=total - sum(rest.work for rest in rests), far=far)
            if left and bar.disable and now - told >= TOLD:
                say(console, f"{doing}: {far}")
                told = now
            time.sleep(LOOK)


def say(console: Console, line: str) -> None:
    """A line that is printed as it is, however long."""
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def _work(member: Member) -> float:
    """What a run takes beside the others: epochs of as many layers; how large those are is the same in most studies."""
    config = cast(TrainTask, member.task).config
    return float(config.epochs * (config.model.depth or 1))


def _rest(member: Member) -> Rest:
    """How much of it is left."""
    work = _work(member)
    if not member.task.folder.exists():
        return Rest(member.name, work)
    run = open_run(member.task.folder)
    far = run.record.step / (run.config.epochs * run.record.steps_per_epoch)
    return Rest(member.name, work * (1 - far), run.record.seconds / (work * far) if far else None)
