"""What is seen while a search runs: a table on a terminal, a line for each trial elsewhere."""

import csv
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import linear_regression
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from pipelines.tuning.plan import Plan
from pipelines.tuning.space import Value, searched
from pipelines.tuning.state import FILE, State, Trial, read

SHOWN = 12
"""Finished trials in the table: the best."""
INTERVAL = 0.5
"""Seconds between two looks at the search."""


class Board:
    """Shows trials, their hyperparameters and objectives, and the time left.

    Args:
        console: where to.
        plan: what is searched.
        folder: of the search.
        workers: how many there are on this machine, for the time left before any trial is done.
    """

    def __init__(self, console: Console, plan: Plan, folder: Path, workers: int) -> None:
        self.console = console
        self.plan = plan
        self.folder = folder
        self.workers = workers
        self._seen = 0.0
        self._looked = 0.0
        self._state: State | None = None
        self._told: set[str] = set()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "Board":
        before = read(self.folder)
        if before:
            self._told = {trial.number for trial in before.trials if trial.over}
        if self._live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.update(final=True)
        if self._live:
            self._live.stop()

    def say(self, line: str) -> None:
        """A line that stays."""
        self.console.print(line, highlight=False, soft_wrap=True, markup=False)

    def update(self, final: bool = False) -> None:
        """Looks at the search, and shows what is new."""
        now = time.monotonic()
        if now - self._looked < INTERVAL and not final:
            return
        self._looked = now
        try:
            changed = (self.folder / FILE).stat().st_mtime
        except FileNotFoundError:
            return
        if changed != self._seen:
            self._seen = changed
            self._state = read(self.folder)
        if self._state and self._live:
            self._live.update(picture(self.plan, self._state, self.folder, self.workers, time.time()), refresh=True)
        elif self._state:
            self._tell(self._state)

    def _tell(self, state: State) -> None:
        for trial in state.trials:
            if trial.over and trial.number not in self._told:
                self._told.add(trial.number)
                drawn = self.plan.meant(trial.values)
                values = " ".join(f"{name}={_short(value)}" for name, value in drawn.items())
                score = trial.reason if trial.score is None else f"{state.objective.name} {trial.score:.6g}"
                far = summary(self.plan, state, self.workers, time.time())
                self.say(f"trial {trial.number}  {score}  {values}  {trial.seconds:.0f} s  {far}")


def summary(plan: Plan, state: State, workers: int, now: float) -> str:
    """How far a search is, in a line."""
    over = [trial for trial in state.trials if trial.over]
    failed = sum(trial.status == "failed" for trial in over)
    parts = [f"{len(over)} of {len(plan.work)} trials"]
    parts += [f"{failed} failed"] if failed else []
    waiting = sum(trial.status == "waiting" for trial in state.trials)
    parts += [f"{waiting} waiting for a worker"] if waiting else []
    if state.ranked:
        best = state.ranked[0]
        parts.append(f"best {best.score:.6g} (trial {best.number})")
    left = time_left(plan, state, workers, now)
    parts += [f"about {_time(left)} left"] if left else []
    return ", ".join(parts)


def time_left(plan: Plan, state: State, workers: int, now: float) -> float | None:
    """About how many seconds a search will take from now on; None while nothing is known.

    Args:
        plan: how many trials there are, and their epochs.
        state: what those that are done took.
        workers: at least so many run at the same time.
        now: seconds since 1970.
    """
    over = [trial for trial in state.trials if trial.over]
    if not over:
        return None
    start, epoch = pace([_work(plan, trial) for trial in over], [trial.seconds for trial in over])
    running = [trial for trial in state.trials if trial.status == "running"]
    done = sum(start + epoch * _work(plan, trial) for trial in over)
    done += sum(min(start + epoch * _work(plan, trial), trial.seconds + now - trial.since) for trial in running)
    whole = sum(start + epoch * epochs for epochs in plan.work)
    return max(0.0, whole - done) / max(1, workers, len(running))


def pace(epochs: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """What trials take: the seconds to start one, and those of an epoch.

    Args:
        epochs: of each trial.
        seconds: that it took.

    Example:
        pace([1, 1, 3], [6.0, 6.0, 8.0])  # (5.0, 1.0)
    """
    if len(set(epochs)) > 1:
        epoch, start = linear_regression(epochs, seconds)
        if epoch >= 0 and start >= 0:
            return start, epoch
    return 0.0, linear_regression([*epochs, 0], [*seconds, 0], proportional=True).slope


def _work(plan: Plan, trial: Trial) -> int:
    return (trial.epochs or plan.config.epochs) - trial.before


def picture(plan: Plan, state: State, folder: Path, workers: int, now: float) -> Group:
    """The table of a search: trials that run, then those that are done, the best first."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    names = [*(["net"] if plan.nets else []), *searched(plan.space)]
    for head in ("trial", *names, "epoch", state.objective.name, "time"):
        side: Literal["left", "right"] = "left" if head in ("trial", "net", "activation") else "right"
        words = head.split("_")
        # On a narrow terminal names of choices are cut off before numbers are.
        least = None if head in ("net", "activation") else max(map(len, words))
        table.add_column("\n".join(words), justify=side, no_wrap=True, min_width=least)
    running = [trial for trial in state.trials if not trial.over]
    failed = [trial for trial in state.trials if trial.status == "failed"]
    for trial in [*running, *state.ranked[:SHOWN], *failed[-2:]]:
        drawn = plan.meant(trial.values)
        cells = [_short(drawn.get(name, "")) for name in names]
        table.add_row(trial.number, *cells, *_progress(plan, trial, state.root(trial), folder, now), style=_style(trial, state))
    lines = [f"{plan.algorithm} search over {plan.name}, {summary(plan, state, workers, now)}"]
    lines += [plan.label] if plan.label else []
    return Group(*(Text(line) for line in lines), table)


def _progress(plan: Plan, trial: Trial, root: Trial, folder: Path, now: float) -> tuple[str, str, str]:
    whole = trial.epochs or plan.config.epochs
    if trial.score is not None:
        return str(whole), f"{trial.score:.4f}", _time(trial.seconds)
    if trial.status == "failed":
        return "", trial.reason.partition(":")[0][:24], _time(trial.seconds)
    if trial.status == "waiting":
        return "", "waiting", _time(trial.seconds)
    done = _epochs(folder / "trials" / root.number / "metrics.csv")
    return f"{done}/{whole}", "running", _time(trial.seconds + now - trial.since)


def _epochs(path: Path) -> int:
    # The rows of a file that another process is writing.
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return max(0, sum(1 for _ in csv.reader(file)) - 1)
    except OSError:
        return 0


def _style(trial: Trial, state: State) -> str:
    if trial.status == "failed":
        return "dim"
    return "bold green" if state.ranked and trial is state.ranked[0] else ""


def _short(value: Value) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
