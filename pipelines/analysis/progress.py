"""Progress of an analysis: a bar with the time left on a terminal, occasional lines elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from pipelines.core.console import TimeLeftColumn, say
from pipelines.core.durations import clock, remaining

INTERVAL = 20.0
"""Seconds between two lines."""


class AnalysisProgress:
    """Shows the progress of each step and the time left.

    Args:
        console: where to print the bar or the lines.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str, count: int, what: str = "examples") -> Iterator[Callable[[int], None]]:
        """Shows one step.

        Args:
            name: name of the step.
            count: number of examples to process, or of something else.
            what: what is counted, in the plural.

        Yields:
            A function to call with the number done.
        """
        started = time.perf_counter()
        if not self._console.is_terminal:
            yield self._lines(name, count, what, started)
            say(self._console, f"{name}: {count:,} {what}, {time.perf_counter() - started:.1f} s")
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:,} of {task.total:,}"),
            TimeElapsedColumn(),
            TimeLeftColumn(),
        )
        with Progress(*columns, console=self._console, expand=True) as bar:
            task = bar.add_task(f"{name:<15}", total=count)
            yield lambda done: bar.update(task, completed=done)

    def _lines(self, name: str, count: int, what: str, started: float) -> Callable[[int], None]:
        printed = started
        first: tuple[float, int] | None = None

        def advance(done: int) -> None:
            nonlocal printed, first
            now = time.perf_counter()
            # The first batch does not count, because it includes compilation.
            first = first or (now, done)
            left = remaining(now - first[0], done - first[1], count - first[1])
            if now - printed < INTERVAL or left is None:
                return
            printed = now
            say(self._console, f"{name}: {done:,} of {count:,} {what}, {clock(left)} left")

        return advance
