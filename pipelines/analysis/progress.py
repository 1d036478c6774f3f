"""What is seen while a net is analysed: a bar with the time left on a terminal, a line now and then elsewhere."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn

EVERY = 20.0  # seconds between two lines


class Shown:
    """Shows how far each step is, and the time that it has left.

    Args:
        console: where to.
    """

    def __init__(self, console: Console) -> None:
        self._console = console

    @contextmanager
    def step(self, name: str, examples: int) -> Iterator[Callable[[int], None]]:
        """Shows one step.

        Args:
            name: what is done.
            examples: to be done.

        Yields:
            A function to be told the number of examples done.
        """
        started = time.perf_counter()
        if not self._console.is_terminal:
            yield self._lines(name, examples, started)
            self._print(f"{name}: {examples:,} examples, {time.perf_counter() - started:.1f} s")
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.completed:,} of {task.total:,}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
        )
        with Progress(*columns, console=self._console, expand=True) as bar:
            task = bar.add_task(f"{name:<15}", total=examples)
            yield lambda done: bar.update(task, completed=done)

    def _lines(self, name: str, examples: int, started: float) -> Callable[[int], None]:
        said = started
        first: tuple[float, int] | None = None

        def told(done: int) -> None:
            nonlocal said, first
            now = time.perf_counter()
            # The first batch compiles, and says nothing about speed.
            first = first or (now, done)
            if now - said < EVERY or done == first[1]:
                return
            said = now
            left = round((examples - done) * (now - first[0]) / (done - first[1]))
            clock = f"{left // 3600}:{left % 3600 // 60:02}:{left % 60:02}"
            self._print(f"{name}: {done:,} of {examples:,} examples, {clock} left")

        return told

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True)
