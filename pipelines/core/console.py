"""Output on a console: lines and numbers in them, a console for tables, and the time left of a progress bar."""

import shlex
from pathlib import Path

from rich.console import Console
from rich.progress import ProgressColumn, Task, TaskID
from rich.text import Text

from pipelines.core.durations import clock, remaining

# Columns of a table that goes to another program, which must not be wrapped.
WIDE = 400
UNKNOWN = "-:--"


def say(console: Console, text: str) -> None:
    """Prints a text verbatim: without markup, colours or additional line breaks.

    Example:
        say(console, f"written: {path}")
    """
    console.print(text, highlight=False, soft_wrap=True, markup=False, emoji=False)


def printable(name: str) -> str:
    r"""Escapes bytes of a name that are not UTF-8 as \xe9: Parquet, files of TFDS and terminals take nothing else."""
    return name if name.isascii() else name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def counted(number: int, noun: str) -> str:
    """Returns a number of things, such as "1 step" or "2,000 steps".

    Args:
        number: the number.
        noun: the noun in the singular.
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def shown_loss(loss: float, *, regression: bool, digits: int = 4) -> str:
    """Returns a loss as text. That of a regression depends on the unit of its target, and may be far below 1.

    Args:
        loss: the loss.
        regression: whether it is that of a regression.
        digits: number of decimal places; of a regression, of significant digits.
    """
    return f"{loss:.{digits}{'g' if regression else 'f'}}"


def next_command(*words: object, data_dir: Path | None = None) -> str:
    """Returns a command of this program, for messages; names with spaces are quoted.

    Args:
        *words: verb, options, and what it takes: paths or URLs.
        data_dir: folder of prepared data, if it was given.

    Example:
        next_command("evaluate", Path("runs/demo"))  # "highway evaluate runs/demo"
    """
    return shlex.join(["highway", *map(str, words), *(["--data-dir", str(data_dir)] if data_dir else [])])


def table_console() -> Console:
    """Returns a console for tables on the standard output: as wide as the terminal, or `WIDE` for another program."""
    console = Console()
    return console if console.is_terminal else Console(width=WIDE)


class TimeLeftColumn(ProgressColumn):
    """Shows the time left of a progress bar, from the average pace between the first advance and the latest.

    The time before the first advance does not count, because it includes compilation, nor does work that was done when
    the bar appeared, because a resumed job did it.

    Example:
        with Progress(BarColumn(), TimeLeftColumn()) as bar:
            task = bar.add_task("train", total=100)
    """

    def __init__(self) -> None:
        super().__init__()
        # Up to three times of each task, with the work completed then: at the start, the first advance and the latest.
        self._seen: dict[TaskID, list[tuple[float, float]]] = {}

    def render(self, task: Task) -> Text:
        """Rich's hook."""
        return Text(self._time_left(task), style="progress.remaining")

    def _time_left(self, task: Task) -> str:
        now = task.get_time()
        seen = self._seen.setdefault(task.id, [])
        if not seen or task.completed != seen[-1][1]:
            del seen[2:]
            seen.append((now, task.completed))
        if task.finished:
            return clock(0)
        if task.total is None or len(seen) < 3:
            return UNKNOWN
        _, (first, before), (latest, done) = seen
        left = remaining(latest - first, done - before, task.total - before)
        return UNKNOWN if left is None else clock(max(0.0, left - (now - latest)))
