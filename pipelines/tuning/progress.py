"""What is seen while a search runs: a table on a terminal, a line for each trial elsewhere."""

import time
from pathlib import Path

from rich.console import Console
from rich.live import Live
from rich.text import Text

from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.state import FILE, SearchState, read
from pipelines.tuning.table import rendered, short, summary

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

    def __init__(self, console: Console, plan: SearchPlan, folder: Path, workers: int) -> None:
        self.console = console
        self.plan = plan
        self.folder = folder
        self.workers = workers
        self._seen = 0.0
        self._looked = 0.0
        self._state: SearchState | None = None
        self._told: set[str] = set()
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None

    def __enter__(self) -> "Board":
        before = read(self.folder)
        if before:
            self._told = {trial.number for trial in before.trials if trial.over}
        if self._live:
            self._live.start()
            self._live.update(Text("chief and workers start"), refresh=True)
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
            seen = rendered(self.plan, self._state, self.folder, self.workers, now=time.time(), size=self.console.size)
            self._live.update(seen, refresh=True)
        elif self._state:
            self._tell(self._state)

    def _tell(self, state: SearchState) -> None:
        for trial in state.trials:
            if trial.over and trial.number not in self._told:
                self._told.add(trial.number)
                drawn = self.plan.meant(trial.values)
                values = " ".join(f"{name}={short(value)}" for name, value in drawn.items())
                score = trial.reason if trial.score is None else f"{state.objective.name} {trial.score:.6g}"
                far = summary(self.plan, state, self.workers, time.time())
                self.say(f"trial {trial.number}  {score}  {values}  {trial.seconds:.0f} s  {far}")
