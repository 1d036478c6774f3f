"""Rows of results: median and spread, and ratios taken round by round; and how documents show them."""

import csv
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path

# A row of a published table, as text.
Record = Mapping[str, str]


@dataclass(frozen=True)
class Row:
    """One measure of one contestant; a line of the CSV file.

    A ratio says how many times better (faster, earlier, smaller) a contestant is than the best peer, so above 1 is
    better. Ratios are computed within rounds, in which both ran one after the other, and reported as median, minimum
    and maximum. The `of_` fields are shares of the machine's roof on all cores: large products, products as small as
    those of a step, and bandwidth.
    """

    section: str
    measure: str = ""
    unit: str = ""
    contestant: str = ""
    ours: bool = False
    depth: int = 0
    width: int = 0
    batch: int = 0
    precision: str = "float32"
    median: float = 0.0
    low: float = 0.0
    high: float = 0.0
    rounds: int = 0
    best_peer: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    of_peak: float | None = None
    of_small_products: float | None = None
    of_bandwidth: float | None = None
    versions: str = ""
    data: str = ""
    machine: str = ""
    command: str = ""


def spread(values: Sequence[float]) -> tuple[float, float, float]:
    """Returns median, minimum and maximum."""
    return statistics.median(values), min(values), max(values)


def best(values: Mapping[str, Sequence[float]], higher: bool) -> str:
    """Finds the name with the best median; the first one in a tie.

    Args:
        values: values by name.
        higher: whether more is better.
    """
    return (max if higher else min)(values, key=lambda name: statistics.median(values[name]))


def ratios(mine: Sequence[float], others: Sequence[float], higher: bool) -> list[float]:
    """Computes how many times better one contestant is than another, round by round.

    Args:
        mine: one value per round.
        others: values of the other one in the same rounds.
        higher: whether more is better.

    Returns:
        One ratio for each round in which both ran.

    Example:
        ratios([2.0, 3.0], [1.0, 1.0], higher=True)  # [2.0, 3.0]
    """
    return [a / b if higher else b / a for a, b in zip(mine, others, strict=False)]


def write(path: Path, rows: Sequence[Row]) -> None:
    """Writes rows as CSV, with four significant digits.

    Args:
        path: path of the file.
        rows: rows to write, at least one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [item.name for item in fields(Row)], lineterminator="\n")
        writer.writeheader()
        for row in rows:
            writer.writerow({name: _short(value) for name, value in asdict(row).items()})


def number(value: float | str) -> str:
    """Formats a number with three significant digits, for a document."""
    value = float(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def markdown(heads: Sequence[str], lines: Sequence[Sequence[str]]) -> list[str]:
    """Returns the lines of a table in Markdown.

    Args:
        heads: heads of the columns, of which all but the first are aligned to the right.
        lines: cells of the lines.
    """
    marks = ["---", *["---:"] * (len(heads) - 1)]
    return ["|" + "".join(f" {cell} |".replace("  ", " ") for cell in cells) for cells in (heads, marks, *lines)]


def _short(value: object) -> object:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else value
