"""Progress of a running search: a table on a terminal, a line per finished trial elsewhere, and the time left."""

import csv
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from rich.console import Console, ConsoleDimensions, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipelines.core import durations
from pipelines.core.console import say
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import FILE, SearchState, Trial, read
from pipelines.tuning.space import Value, searched

INTERVAL = 0.5
"""Seconds between two readings of the state."""
SHOWN = 12
"""Maximum number of finished trials in the table: the best ones."""
OTHER_LINES = 8
"""Terminal lines that hold no trials: output above the table, its head, and the notes below."""
LEAST = 4
"""Minimum number of trials in the table, however low the terminal."""
LEFT_ALIGNED = ("trial", "net", "activation", "precision")
HEADS = {
    "learning_rate": "learning\nrate",
    "momentum": "momen-\ntum",
    "activation": "activ-\nation",
    "transform_bias": "gate\nbias",
    "weight_decay": "weight\ndecay",
    "label_smoothing": "label\nsmoothing",
    "batch_size": "batch\nsize",
    "precision": "preci-\nsion",
    "val_accuracy": "validation\naccuracy",
    "val_cross_entropy": "validation\ncross-entropy",
    "val_loss": "validation\nloss",
    "val_mse": "validation\nerror",
}
"""Column heads; all other columns are headed by their name."""


class SearchProgress:
    """Shows trials, their hyperparameters and objectives, and the time left.

    Args:
        console: where to print.
        plan: the plan of the search.
        folder: the folder of the search.
        workers: minimum number of trials that run at the same time, for the estimate of the time left.
    """

    def __init__(self, console: Console, plan: SearchPlan, folder: Path, workers: int) -> None:
        self.console = console
        self.plan = plan
        self.folder = folder
        self.workers = workers
        self._changed = 0.0
        self._read = 0.0
        self._state: SearchState | None = None
        self._reported: set[str] = set()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "SearchProgress":
        before = read(self.folder)
        if before:
            self._reported = {trial.number for trial in before.trials if trial.over}
        if self._live:
            self._live.start()
            self._live.update(Text("starting workers"), refresh=True)
        return self

    def __exit__(self, *_: object) -> None:
        self.update(final=True)
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """Prints a line above the table."""
        say(self.console, line)

    def update(self, final: bool = False) -> None:
        """Reads the state and shows changes."""
        now = time.monotonic()
        if now - self._read < INTERVAL and not final:
            return
        self._read = now
        try:
            changed = (self.folder / FILE).stat().st_mtime
        except FileNotFoundError:
            return
        if changed != self._changed:
            self._changed = changed
            self._state = read(self.folder)
        if self._state and self._live:
            table = render(self.plan, self._state, self.folder, self.workers, now=time.time(), size=self.console.size)
            self._live.update(table, refresh=True)
        elif self._state:
            self._report(self._state)

    def _report(self, state: SearchState) -> None:
        for trial in state.trials:
            if trial.over and trial.number not in self._reported:
                self._reported.add(trial.number)
                values = " ".join(f"{name}={short(value)}" for name, value in self.plan.effective(trial.values).items())
                objective = state.objective
                score = trial.reason if trial.score is None else f"{objective.label} {objective.text(trial.score)}"
                progress = summary(self.plan, state, self.workers, time.time())
                self.say(f"trial {trial.number}  {score}  {values}  {trial.seconds:.0f} s  {progress}")


def summary(plan: SearchPlan, state: SearchState, workers: int, now: float) -> str:
    """Summarizes the progress of a search in one line."""
    over = [trial for trial in state.trials if trial.over]
    failed = sum(trial.status == "failed" for trial in over)
    parts = [f"{len(over)} of {len(plan.work)} trials"]
    parts += [f"{failed} failed"] if failed else []
    waiting = sum(trial.status == "waiting" for trial in state.trials)
    parts += [f"{waiting} waiting"] if waiting else []
    if state.ranked:
        best = state.ranked[0]
        parts.append(f"best {state.objective.text(best.score)} (trial {best.number})")
    left = time_left(plan, state, workers, now)
    parts += [f"about {durations.clock(left)} left"] if left else []
    return ", ".join(parts)


def render(
    plan: SearchPlan, state: SearchState, folder: Path, workers: int, *, now: float, size: ConsoleDimensions
) -> Group:
    """Renders the running trials, the best completed ones, and the last failures as a table.

    Args:
        plan: the plan of the search.
        state: the state of the search.
        folder: the folder of the search, with the metrics of running trials.
        workers: see `time_left`.
        now: seconds since 1970.
        size: columns and lines of the terminal; hyperparameters that do not fit are left out, from the last one on.
    """
    space = searched(plan.space)
    constants = {name: short(bounds[0]) for name, bounds in space.items() if len(bounds) == 1}
    names = [*(["net"] if plan.nets else []), *(name for name in space if name not in constants)]
    failed = [trial for trial in state.trials if trial.status == "failed"]
    room = max(LEAST, size.height - OTHER_LINES)
    running = [trial for trial in state.trials if not trial.over][: room // 2]
    trials = [*running, *state.ranked[:SHOWN], *failed[-2:]][:room]
    values = [plan.effective(trial.values) for trial in trials]
    sampled = {name: [short(row.get(name, "")) for row in values] for name in names}
    progress = zip(*(_progress(plan, state, trial, folder, now) for trial in trials), strict=True)
    others = dict(zip(("epoch", state.objective.name, "time"), progress, strict=False))
    others["trial"] = tuple(trial.number for trial in trials)
    hidden: list[str] = []
    while (
        sum(_width(name, cells) + 1 for name, cells in (sampled | others).items()) - 1 > size.width and len(sampled) > 1
    ):
        hidden.insert(0, sampled.popitem()[0])
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    columns = {"trial": others.pop("trial"), **sampled, **others}
    for name in columns:
        side: Literal["left", "right"] = "left" if name in LEFT_ALIGNED else "right"
        table.add_column(HEADS.get(name, name), justify=side, vertical="bottom", no_wrap=True)
    for trial, *cells in zip(trials, *columns.values(), strict=True):
        table.add_row(*cells, style=_style(trial, state))
    notes = [f"in all trials: {', '.join(f'{name} {value}' for name, value in constants.items())}"] if constants else []
    notes += [f"no room for {', '.join(hidden)}: see trials.csv at the end"] if hidden else []
    notes += [f"failed: {'; '.join(state.reasons)}"] if failed else []
    below = (Text(note, style="dim", no_wrap=True, overflow="ellipsis") for note in notes)
    return Group(Text(summary(plan, state, workers, now)), table, *below)


def short(value: Value) -> str:
    """Formats a hyperparameter in a few characters."""
    return f"{value:.3g}" if isinstance(value, float) else str(value).removeprefix("mixed_")


def time_left(plan: SearchPlan, state: SearchState, workers: int, now: float) -> float | None:
    """Estimates the seconds until a search ends; None before a trial is done.

    Args:
        plan: the plan, for the trials and their epochs.
        state: the state, for the durations of finished trials.
        workers: minimum number of trials that run at the same time.
        now: seconds since 1970.
    """
    over = [trial for trial in state.trials if trial.over]
    if not over:
        return None
    running = [trial for trial in state.trials if trial.status == "running"]
    jobs = [durations.Job(_work(plan, trial), elapsed=trial.seconds + now - trial.since) for trial in running]
    # Trials that have not begun may come in any order, because Hyperband's order depends on results.
    begun = Counter(_work(plan, trial) for trial in (*over, *running))
    jobs += [durations.Job(epochs) for epochs in (Counter(plan.work) - begun).elements()]
    pace = durations.fitted_pace([_work(plan, trial) for trial in over], [trial.seconds for trial in over])
    return durations.time_left(jobs, max(1, workers, len(running)), pace)


def _work(plan: SearchPlan, trial: Trial) -> int:
    return (trial.epochs or plan.config.epochs) - trial.before


def _width(name: str, cells: Iterable[str]) -> int:
    return max(map(len, [*HEADS.get(name, name).split("\n"), *cells]))


def _progress(plan: SearchPlan, state: SearchState, trial: Trial, folder: Path, now: float) -> tuple[str, str, str]:
    whole = trial.epochs or plan.config.epochs
    if trial.score is not None:
        return str(whole), state.objective.text(trial.score), durations.clock(trial.seconds)
    if trial.status in ("failed", "waiting"):
        return "", trial.status, durations.clock(trial.seconds)
    done = _epochs(folder / "trials" / state.root(trial).number / "metrics.csv")
    return f"{done}/{whole}", "running", durations.clock(trial.seconds + now - trial.since)


def _epochs(path: Path) -> int:
    # Another process may be writing to the file.
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return max(0, sum(1 for _ in csv.reader(file)) - 1)
    except OSError:
        return 0


def _style(trial: Trial, state: SearchState) -> str:
    if trial.status == "failed":
        return "dim"
    return "bold green" if state.ranked and trial is state.ranked[0] else ""
