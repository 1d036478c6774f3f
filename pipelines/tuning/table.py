"""The table of a search that runs, which has to fit into a terminal."""

import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from rich.console import ConsoleDimensions, Group
from rich.table import Table
from rich.text import Text

from pipelines.core.durations import clock
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.remaining import time_left
from pipelines.tuning.space import Value, searched
from pipelines.tuning.state import SearchState, Trial

SHOWN = 12
"""Finished trials in the table: the best."""
AROUND = 8
"""Lines of a terminal that are not for trials: what is said above the table, its head, and what is said below."""
LEAST = 4
"""Trials in the table of a terminal that is lower."""
WORDS = ("trial", "net", "activation", "precision")
HEADS = {
    "learning_rate": "learning\nrate",
    "momentum": "momen-\ntum",
    "activation": "activ-\nation",
    "transform_bias": "gate\nbias",
    "batch_size": "batch\nsize",
    "precision": "preci-\nsion",
    "val_accuracy": "validation\naccuracy",
    "val_loss": "validation\nloss",
}
"""The heads of columns; the others are called by their name."""


def summary(plan: SearchPlan, state: SearchState, workers: int, now: float) -> str:
    """How far a search is, in a line."""
    over = [trial for trial in state.trials if trial.over]
    failed = sum(trial.status == "failed" for trial in over)
    parts = [f"{len(over)} of {len(plan.work)} trials"]
    parts += [f"{failed} failed"] if failed else []
    waiting = sum(trial.status == "waiting" for trial in state.trials)
    parts += [f"{waiting} waiting"] if waiting else []
    if state.ranked:
        best = state.ranked[0]
        parts.append(f"best {best.score:.4g} (trial {best.number})")
    left = time_left(plan, state, workers, now)
    parts += [f"about {clock(left)} left"] if left else []
    return ", ".join(parts)


def rendered(
    plan: SearchPlan, state: SearchState, folder: Path, workers: int, *, now: float, size: ConsoleDimensions
) -> Group:
    """The table of a search: trials that run, the best of those that are done, and the last that failed.

    Args:
        plan: what is searched.
        state: how far it is.
        folder: of the search, with the curves of trials that run.
        workers: as in `time_left`.
        now: seconds since 1970.
        size: columns and lines of the terminal; hyperparameters for which there is no room are left out, the last
            first.
    """
    space = searched(plan.space)
    same = {name: short(bounds[0]) for name, bounds in space.items() if len(bounds) == 1}
    names = [*(["net"] if plan.nets else []), *(name for name in space if name not in same)]
    failed = [trial for trial in state.trials if trial.status == "failed"]
    room = max(LEAST, size.height - AROUND)
    running = [trial for trial in state.trials if not trial.over][: room // 2]
    trials = [*running, *state.ranked[:SHOWN], *failed[-2:]][:room]
    meant = [plan.meant(trial.values) for trial in trials]
    drawn = {name: [short(values.get(name, "")) for values in meant] for name in names}
    progress = zip(*(_progress(plan, trial, state.root(trial), folder, now) for trial in trials), strict=True)
    others = dict(zip(("epoch", state.objective.name, "time"), progress, strict=False))
    others["trial"] = tuple(trial.number for trial in trials)
    hidden: list[str] = []
    while sum(_width(name, cells) + 1 for name, cells in (drawn | others).items()) - 1 > size.width and len(drawn) > 1:
        hidden.insert(0, drawn.popitem()[0])
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    columns = {"trial": others.pop("trial"), **drawn, **others}
    for name in columns:
        side: Literal["left", "right"] = "left" if name in WORDS else "right"
        table.add_column(HEADS.get(name, name), justify=side, vertical="bottom", no_wrap=True)
    for trial, *cells in zip(trials, *columns.values(), strict=True):
        table.add_row(*cells, style=_style(trial, state))
    notes = [f"in all trials: {', '.join(f'{name} {value}' for name, value in same.items())}"] if same else []
    notes += [f"no room for {', '.join(hidden)}: see trials.csv at the end"] if hidden else []
    notes += [f"failed: {'; '.join(state.reasons)}"] if failed else []
    below = (Text(note, style="dim", no_wrap=True, overflow="ellipsis") for note in notes)
    return Group(Text(summary(plan, state, workers, now)), table, *below)


def _width(name: str, cells: Iterable[str]) -> int:
    return max(map(len, [*HEADS.get(name, name).split("\n"), *cells]))


def _progress(plan: SearchPlan, trial: Trial, root: Trial, folder: Path, now: float) -> tuple[str, str, str]:
    whole = trial.epochs or plan.config.epochs
    if trial.score is not None:
        return str(whole), f"{trial.score:.4f}", clock(trial.seconds)
    if trial.status == "failed":
        return "", "failed", clock(trial.seconds)
    if trial.status == "waiting":
        return "", "waiting", clock(trial.seconds)
    done = _epochs(folder / "trials" / root.number / "metrics.csv")
    return f"{done}/{whole}", "running", clock(trial.seconds + now - trial.since)


def _epochs(path: Path) -> int:
    # The rows of a file that another process is writing.
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return max(0, sum(1 for _ in csv.reader(file)) - 1)
    except OSError:
        return 0


def _style(trial: Trial, state: SearchState) -> str:
    if trial.status == "failed":
        return "dim"
    return "bold green" if state.ranked and trial is state.ranked[0] else ""


def short(value: Value) -> str:
    """A hyperparameter in a few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(value).removeprefix("mixed_")
