"""Tables for the terminal, and figures, made from the rows."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Row
from pipelines.core.plotting import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    legend,
    listed_ticks,
    log_ticks,
    saved,
)

# More colours for colour-blind readers, by Paul Tol, and a dark brown.
WINE, TEAL, OLIVE, INDIGO, BROWN, ROSE = "#882255", "#44AA99", "#999933", "#332288", "#663300", "#CC6677"
# Ours are thick lines in warm colours; peers are cold or grey. No two contestants of a figure share a colour.
COLOURS = {True: (ORANGE, WINE, AMBER, PURPLE, BROWN, ROSE), False: (BLUE, SKY, TEAL, GREEN, OLIVE, GREY, INDIGO)}
MARKERS = "osD^vPX"


def text(rows: Sequence[Row]) -> str:
    """Formats rows as tables, one for each measure and size.

    Args:
        rows: rows of a section.
    """
    tables: dict[tuple[str, str, int, int, str], list[Row]] = {}
    for row in rows:
        tables.setdefault((row.measure, row.unit, row.depth, row.width, row.precision), []).append(row)
    lines = []
    for (measure, unit, depth, width, precision), group in tables.items():
        size = f", depth {depth:,}, width {width}" if depth else ""
        lines.append(f"\n{measure}{size}, {precision} ({unit})")
        for row in group:
            numbers = f"{row.median:10.4g}  [{row.low:.4g} - {row.high:.4g}]"
            ratio = "" if row.ratio is None else f"  x {row.ratio:.2f} [{row.ratio_low:.2f} - {row.ratio_high:.2f}]"
            share = "" if row.of_peak is None else f"  {row.of_peak:.1%} of peak"
            if row.of_small_products is not None:
                share += f", {row.of_small_products:.1%} of small products"
            lines.append(f"  {row.contestant:34}{numbers:28}{ratio:24}{share}".rstrip())
    return "\n".join(lines) + "\n"


def draw(section: str, rows: Sequence[Row], folder: Path) -> None:
    """Draws the figure of a section, if it has one.

    Args:
        section: name of the section.
        rows: rows of that section.
        folder: folder for the figure.
    """
    if section == "dense":
        _draw_dense(rows, folder / "dense.png")
    elif section == "wide":
        _draw_wide(rows, folder / "wide.png")
    elif section == "conv":
        _draw_conv(rows, folder / "conv.png")
    elif section == "serving":
        _draw_serving(rows, folder / "serving.png")


def _draw_dense(rows: Sequence[Row], path: Path) -> None:
    panels = (
        ("steady state", "training steps per second"),
        ("first step from process start", "seconds to the first step"),
        ("study", "seconds for the study of 12 epochs"),
    )
    with saved(path, (11, 8.6)) as figure:
        *axes, last = figure.subplots(2, 2).flat
        last.set_axis_off()
        for one, (measure, title) in zip(axes, panels, strict=True):
            of_panel = [row for row in rows if row.measure.startswith(measure)]
            if of_panel:
                _draw_lines(one, of_panel, "depth", _styles(rows))
                one.set_title(title)
                one.set_xlabel("highway blocks of 50 units")
            else:
                one.set_axis_off()
        last.legend(*axes[0].get_legend_handles_labels(), loc="center", fontsize=12, frameon=False)
        figure.suptitle(f"A dense highway net, batch {rows[0].batch}, float32\n{rows[0].machine}", fontsize=11)


def _draw_wide(rows: Sequence[Row], path: Path) -> None:
    rows = [row for row in rows if row.measure == "steady state"]
    with saved(path, (11, 4.6)) as figure:
        axes = figure.subplots()
        _draw_lines(axes, rows, "width", _styles(rows))
        axes.set_xlabel("units of each highway block")
        axes.set_ylabel("training steps per second")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside right center", fontsize=11, frameon=False)
        title = f"A dense highway net of {rows[0].depth} blocks, batch {rows[0].batch}, float32"
        figure.suptitle(f"{title}\n{rows[0].machine}", fontsize=11)


def _draw_lines(axes: Any, rows: Sequence[Row], along: str, styles: dict[str, dict[str, object]]) -> None:
    """Draws a line per contestant, with a band from the lowest to the highest round."""
    for name, style in styles.items():
        points = sorted((getattr(row, along), row) for row in rows if row.contestant == name)
        x = [at for at, _ in points]
        # Also without points, so that the legend has the order of the rows.
        axes.plot(x, [row.median for _, row in points], label=name, ms=5, **style)
        low, high = ([getattr(row, end) for _, row in points] for end in ("low", "high"))
        axes.fill_between(x, low, high, color=style["color"], alpha=0.15)
    _logarithmic(axes, sorted({getattr(row, along) for row in rows}))


def _draw_conv(rows: Sequence[Row], path: Path) -> None:
    rows = [row for row in rows if row.unit == "images/s"]
    precisions = sorted({row.precision for row in rows})
    styles = _styles(rows)
    with saved(path, (9, 3.6)) as figure:
        panels = figure.subplots(1, len(precisions), sharex=True, sharey=True, squeeze=False)[0]
        names = list(styles)[::-1]
        for axes, precision in zip(panels, precisions, strict=True):
            for row in rows:
                if row.precision == precision:
                    at = names.index(row.contestant)
                    error = [[row.median - row.low], [row.high - row.median]]
                    axes.barh(at, row.median, color=styles[row.contestant]["color"], xerr=error, height=0.7)
                    axes.text(row.high, at, f"  {row.median:.0f}", va="center")
            axes.set_yticks(range(len(names)), names)
            axes.set_title(precision)
            axes.set_xlabel("training images per second")
            axes.grid(visible=False, axis="y")
            axes.margins(x=0.15)
        figure.suptitle(f"The 19-layer CIFAR net, batch {rows[0].batch}\n{rows[0].machine}", fontsize=11)


def _draw_serving(rows: Sequence[Row], path: Path) -> None:
    styles = _styles(rows)
    workloads = {"": "digits", "photographs, ": "photographs of 1 megapixel"}
    with saved(path, (11, 8.4)) as figure:
        for panels, (prefix, title) in zip(figure.subplots(2, 2), workloads.items(), strict=True):
            for axes, measure in zip(panels, ("throughput", "p99"), strict=True):
                start = f"{prefix}{measure}, "
                of_panel = [row for row in rows if row.measure.startswith(start)]
                ticks: set[int] = set()
                for name, style in styles.items():
                    points = sorted((_connections(row, start), row) for row in of_panel if row.contestant == name)
                    x = [at for at, _ in points]
                    ticks.update(x)
                    median, low, high = ([getattr(row, end) for _, row in points] for end in ("median", "low", "high"))
                    # Error bars, because bands would overlap.
                    spread = np.subtract(median, low), np.subtract(high, median)
                    axes.errorbar(x, median, spread, label=name, ms=5, elinewidth=0.8, capsize=2, **style)
                unit = {"throughput": "answers per second", "p99": "99th percentile, milliseconds"}[measure]
                axes.set_title(f"{title}: {unit}")
                axes.set_xlabel("connections")
                _logarithmic(axes, sorted(ticks))
        legend(figure, loc="outside lower center", ncols=4, fontsize=11)
        figure.suptitle(f"One image per request, dense highway net of 50 layers\n{rows[0].machine}", fontsize=11)


def _connections(row: Row, start: str) -> int:
    return int(row.measure.removeprefix(start).split()[0])


def _styles(rows: Sequence[Row]) -> dict[str, dict[str, object]]:
    """Returns colour, marker and width of each contestant's line."""
    styles: dict[str, dict[str, object]] = {}
    for row in rows:
        if row.contestant not in styles:
            same = sum(style["ours"] is row.ours for style in styles.values())
            styles[row.contestant] = {
                "color": COLOURS[row.ours][same],
                "marker": MARKERS[same % len(MARKERS)],
                "lw": 2.2 if row.ours else 1.4,
                "ours": row.ours,
            }
    return {name: {key: value for key, value in style.items() if key != "ours"} for name, style in styles.items()}


def _logarithmic(axes: Any, ticks: Sequence[int]) -> None:
    listed_ticks(axes.xaxis, ticks)
    log_ticks(axes.yaxis, fine=math.inf)
