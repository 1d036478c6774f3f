"""The winners of a search trained anew, with several seeds."""

import csv
import io
import statistics
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, TextColumn
from rich.progress import Progress as Bar

from pipelines import environment
from pipelines.files import write_text
from pipelines.run import Run, open_run
from pipelines.tuning.crew import Crew, Member, shares
from pipelines.tuning.process import Task
from pipelines.tuning.remaining import clock
from pipelines.tuning.state import Objective

LOOK = 0.2
"""Seconds between two looks at the runs."""


def retrain(
    recipes: Mapping[str, Path],
    folder: Path,
    *,
    seeds: int,
    workers: int,
    data_dir: Path | None,
    objective: Objective,
    console: Console,
) -> Path:
    """Trains each recipe with the seeds 0, 1, ...; runs that are there already are finished or left as they are.

    Args:
        recipes: recipe files, by the name of their net.
        folder: of the search.
        seeds: how many.
        workers: runs at the same time; the next starts as soon as one ends.
        data_dir: where prepared data lies; None for the default of TFDS.
        objective: what is told of them.
        console: for a line for each run and each net, and on a terminal a bar.

    Returns:
        retrained.csv, with a row for each run.

    Raises:
        UserError: a run cannot be trained.
    """
    runs = {(net, seed): folder / "retrained" / f"{net}-seed-{seed}" for net in recipes for seed in range(seeds)}
    members = [
        Member(
            f"{net}-seed-{seed}",
            Task(role="retrain", folder=path, data_dir=data_dir, recipe=recipes[net], seed=seed),
            {},
            folder / "logs" / f"{net}-seed-{seed}.log",
        )
        for (net, seed), path in runs.items()
        if not path.exists() or open_run(path).record.state == "running"
    ]
    _train(members, workers, objective, console)
    rows = [(net, seed, *_score(open_run(path), objective), path) for (net, seed), path in runs.items()]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("net", "seed", f"best_{objective.name}", "best_epoch", "run"))
    writer.writerows((net, seed, "" if best is None else f"{best:.6g}", *rest) for net, seed, best, *rest in rows)
    write_text(folder / "retrained.csv", text.getvalue())
    for net in recipes:
        scores = [row[2] for row in rows if row[0] == net and row[2] is not None]
        found = f"best {objective.name} {_spread(scores)} (n = {len(scores)} of {seeds}, seeds from 0 on)"
        _say(console, f"{net} retrained: {found}")
    return folder / "retrained.csv"


def _train(members: Sequence[Member], workers: int, objective: Objective, console: Console) -> None:
    cores = shares(environment.available(), min(workers, len(members)))
    for member, share in zip(members, cores, strict=False):
        member.task = member.task.model_copy(update={"cores": share})
    columns = (TextColumn("retrains"), BarColumn(bar_width=None), TextColumn("{task.fields[far]}"))
    bar = Bar(*columns, console=console, expand=True, disable=not console.is_terminal)
    task = bar.add_task("", total=len(members), far="")
    left, began = list(members), time.monotonic()
    before = sum(_share(member.task.folder) for member in members)
    with bar, Crew(members[:workers], lambda line: _say(console, line), then=members[workers:]) as crew:
        while left:
            crew.works()
            ended = [member for member in left if member.done]
            left = [member for member in left if member not in ended]
            done = len(members) - len(left) + sum(_share(member.task.folder) for member in left)
            far = f"{len(members) - len(left)} of {len(members)} runs"
            if left and done > before:
                rest = (time.monotonic() - began) * (len(members) - done) / (done - before)
                far += f", about {clock(rest)} left"
            for member in ended:
                run = open_run(member.task.folder)
                score, _ = _score(run, objective)
                found = "diverged" if run.record.state == "diverged" else f"best {objective.name} {score:.6g}"
                _say(console, f"{member.name}: {found}, {clock(run.record.seconds)}; {far}")
            bar.update(task, completed=done, far=far)
            time.sleep(LOOK)


def _share(path: Path) -> float:
    """How much of a run is done."""
    if not path.exists():
        return 0.0
    run = open_run(path)
    return run.record.step / (run.config.epochs * run.record.steps_per_epoch)


def _say(console: Console, line: str) -> None:
    console.print(line, highlight=False, soft_wrap=True, markup=False)


def _score(run: Run, objective: Objective) -> tuple[float | None, float | None]:
    return run.record.metrics.get(f"best_{objective.name}"), run.record.metrics.get("best_epoch")


def _spread(scores: list[float]) -> str:
    if len(scores) < 2:
        return "".join(f"{score:.6g}" for score in scores) or "none, as every run diverged"
    return f"{statistics.mean(scores):.6g} +- {statistics.stdev(scores):.2g}"
