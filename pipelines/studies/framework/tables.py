"""Markdown tables, and accuracies in the form "best (mean ± std, n)"."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

MISSING = "-"
"""Cell without a number."""

MEAN = "mean ± standard deviation over seeds, n = runs"
"""Format of means, for the notes of tables whose rows have several runs."""

SPREAD = f"best ({MEAN})"
"""Format of `measured`, for the same notes."""


@dataclass(frozen=True)
class Table:
    """A table of a study.

    Args:
        title: title above it.
        head: names of the columns.
        rows: cells.
        note: note below it, for what a column name cannot say.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


def measured(shares: Sequence[float], runs: int, best: bool = True) -> str:
    """Formats the accuracies of an arm in percent: best (mean ± std, n).

    Args:
        shares: accuracies of the runs that did not diverge.
        runs: number of all runs.
        best: whether to show the best of several.

    Example:
        measured([0.926, 0.904, 0.893], 3)  # "92.60 (90.77 ± 1.68, n = 3)"
    """
    if not shares:
        return lost(runs)
    several = len(shares) > 1
    mean = statistics.mean(shares) if several else None
    std = statistics.stdev(shares) if several else None
    first = max(shares) if best or not several else None
    return spread(first, mean, std, len(shares), more_diverged(len(shares), runs))


def lost(runs: int) -> str:
    """The cell of an arm without results: diverged in each of its runs, or `MISSING` if it has none."""
    return f"diverged (n = {runs})" if runs else MISSING


def more_diverged(count: int, runs: int) -> str:
    """Says how many of all runs diverged, after the number of those that did not; empty if none diverged."""
    return f", {runs - count} more diverged" if runs > count else ""


def spread(best: float | None, mean: float | None, std: float | None, count: int | None, more: str = "") -> str:
    """Formats the accuracies of an arm in percent, as far as they are known.

    Args:
        best: share, or None.
        mean: share, or None.
        std: share, or None.
        count: number of runs, or None.
        more: appended to the count.

    Example:
        spread(0.924, 0.9231, 0.0012, None)  # "92.40 (92.31 ± 0.12)"
    """
    inside = [] if mean is None else [f"{100 * mean:.2f}" + ("" if std is None else f" ± {100 * std:.2f}")]
    inside += [] if count is None else [f"n = {count}"]
    known = f"({', '.join(inside)}{more})" if inside else ""
    first = "" if best is None else f"{100 * best:.2f}"
    return " ".join(part for part in (first, known) if part) or MISSING


def score_format(rows: Sequence[Sequence[str]], several: str = SPREAD) -> str:
    """Describes the scores of a table for its note: as `several` if a cell has a spread, else as single runs.

    Example:
        score_format([("10 layers", "95.28 (n = 1)")])  # "one run each (n = 1)"
    """
    return several if any("±" in cell for row in rows for cell in row) else "one run each (n = 1)"


def spread_over(count: int) -> str:
    """Describes the results of a source for the note of a table.

    Example:
        spread_over(5)  # "best (mean ± standard deviation over 5 runs)"
    """
    return f"best (mean ± standard deviation over {count} runs)"


def mean(values: Sequence[float], runs: int, digits: int = 3) -> str:
    """Formats the mean of a number over the runs of an arm.

    Args:
        values: numbers of the runs that did not diverge.
        runs: number of all runs.
        digits: decimal places.

    Example:
        mean([0.1, 0.2], 3)  # "0.150 (n = 2, 1 more diverged)"
    """
    if not values:
        return lost(runs)
    diverged = more_diverged(len(values), runs)
    return f"{statistics.mean(values):,.{digits}f}" + (f" (n = {len(values)}{diverged})" if diverged else "")


def number(count: int) -> str:
    """Formats a whole number, with commas.

    Example:
        number(151690)  # "151,690"
    """
    return f"{count:,}"
