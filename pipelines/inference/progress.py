"""What is seen while pictures are predicted: a bar on a terminal, a line for each part elsewhere."""

import time
from collections.abc import Sequence
from contextlib import suppress
from threading import Thread

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

from pipelines.core.errors import UserError
from pipelines.inference.inputs import Listing, Source


class Total:
    """How many pictures there are: counted by a thread of its own, from then on corrected by what was read.

    Args:
        sources: to count.
        listing: what reads them.
    """

    def __init__(self, sources: Sequence[Source], listing: Listing) -> None:
        self._sources = sources
        self._listing = listing
        self._counts: list[int] = []
        # Not waited for: with the last picture it is of no use any more.
        self.thread = Thread(target=self._count, name="count", daemon=True)
        self.thread.start()

    def now(self) -> int | None:
        """The number as far as it is known; None before everything was counted once."""
        if len(self._counts) < len(self._sources):
            return None
        read = self._listing.counts
        return sum(read) + sum(self._counts[len(read) :])

    def _count(self) -> None:
        # What is wrong with a source is told when its turn comes.
        with suppress(UserError):
            for source in self._sources:
                self._counts.append(source.count())


class Shown:
    """Counts pictures, and shows how many, how fast, and the time left.

    Args:
        console: where to.
        total: of all pictures.
        resumed: how many an earlier attempt has done.
    """

    def __init__(self, console: Console, total: Total, resumed: int) -> None:
        self.pictures, self.unreadable = resumed, 0
        self._console = console
        self._total = total
        self._resumed = resumed
        self._bar: Progress | None = None

    def __enter__(self) -> "Shown":
        self._started = time.perf_counter()
        if self._console.is_terminal:
            self._bar = Progress(
                BarColumn(bar_width=None),
                TaskProgressColumn(),
                TextColumn("{task.fields[text]}"),
                TimeRemainingColumn(compact=True),
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

    def add(self, pictures: int, unreadable: int) -> None:
        """Some more pictures are predicted."""
        self.pictures += pictures
        self.unreadable += unreadable
        if self._bar:
            total = self._total.now()
            self._bar.update(
                self._task, completed=self.pictures, total=total and max(total, self.pictures), text=self._text()
            )

    def kept(self) -> None:
        """All of them are on disk."""
        if not self._bar:
            self._console.print(self._text() + self._left(), highlight=False, soft_wrap=True)

    def _text(self) -> str:
        total = self._total.now()
        # A guess can be too low.
        of = f" of {total:,}" if total and total >= self.pictures else ""
        bad = f"  {self.unreadable:,} unreadable" if self.unreadable else ""
        return f"{self.pictures:,}{of} pictures  {self._speed():,.0f}/s{bad}"

    def _left(self) -> str:
        total = self._total.now()
        if not total or total <= self.pictures:
            return ""
        minutes, seconds = divmod(round((total - self.pictures) / self._speed()), 60)
        hours, minutes = divmod(minutes, 60)
        return f"  {hours}:{minutes:02}:{seconds:02} left"

    def _speed(self) -> float:
        return (self.pictures - self._resumed) / max(time.perf_counter() - self._started, 1e-9)
