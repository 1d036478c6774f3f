"""Progress of a prediction job: a bar on a terminal, one line per part elsewhere."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn

from pipelines.core.console import TimeLeftColumn, say
from pipelines.core.durations import clock, remaining
from pipelines.core.errors import UserError
from pipelines.inference.inputs import Listing, Source


class Total:
    """The total number of images, estimated in a thread and corrected as sources are exhausted.

    Args:
        sources: the sources to count.
        listing: the listing that reads them.
    """

    def __init__(self, sources: Sequence[Source], listing: Listing) -> None:
        self._sources = sources
        self._listing = listing
        self._counts: list[int] = []
        # A daemon thread, because the count is useless after the last image.
        self.thread = Thread(target=self._count, name="count", daemon=True)
        self.thread.start()

    def now(self) -> int | None:
        """Returns the current estimate; None before all sources are counted."""
        if len(self._counts) < len(self._sources):
            return None
        read = self._listing.counts
        return sum(read) + sum(self._counts[len(read) :])

    def _count(self) -> None:
        # Errors of a source are reported when it is read.
        with suppress(UserError):
            for source in self._sources:
                self._counts.append(source.count())


class JobProgress:
    """Counts images or rows and shows their number, the speed and the time left.

    Args:
        console: where to print.
        total: returns the total number; None while it is unknown.
        resumed: number of those done by earlier attempts.
        unit: "images" or "rows".
        unreadable: number of unreadable ones among those done by earlier attempts.
    """

    def __init__(
        self, console: Console, total: Callable[[], int | None], resumed: int, unit: str, unreadable: int = 0
    ) -> None:
        self.images, self.unreadable = resumed, unreadable
        self._console = console
        self._total = total
        self._resumed = resumed
        self._unit = unit
        self._bar: Progress | None = None

    def __enter__(self) -> "JobProgress":
        self._started = time.perf_counter()
        if self._console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}"),
                TimeLeftColumn(),
                console=self._console,
                expand=True,
            )
            self._task = self._bar.add_task("predict", total=None, completed=self._resumed, text=self._text())
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
        if self._bar:
            self._bar.stop()

    def left(self, row: int) -> int:
        """Returns the estimated number of images from a row on; 0 while it is unknown."""
        return max(0, (self._total() or 0) - row)

    def add(self, images: int, unreadable: int) -> None:
        """Counts predicted images."""
        self.images += images
        self.unreadable += unreadable
        if self._bar:
            total = self._total()
            self._bar.update(
                self._task, completed=self.images, total=total and max(total, self.images), text=self._text()
            )

    def saved(self) -> None:
        """Reports that all counted images are on disk."""
        if not self._bar:
            say(self._console, self._text() + self._left())

    def _text(self) -> str:
        total = self._total()
        # The estimated total can be too low.
        of = f" of {total:,}" if total and total >= self.images else ""
        unreadable = f"  {self.unreadable:,} unreadable" if self.unreadable else ""
        return f"{self.images:,}{of} {self._unit}  {self._speed():,.0f}/s{unreadable}"

    def _left(self) -> str:
        total = self._total()
        if not total or total <= self.images:
            return ""
        left = remaining(self._elapsed(), self.images - self._resumed, total - self._resumed)
        return "" if left is None else f"  {clock(left)} left"

    def _speed(self) -> float:
        return (self.images - self._resumed) / self._elapsed()

    def _elapsed(self) -> float:
        return max(time.perf_counter() - self._started, 1e-9)
