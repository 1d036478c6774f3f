"""Training curves and depth sweeps of ten-class classifiers."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipelines.core.plotting import GREY, legend, listed_ticks, log_ticks, share_axis, whole_ticks
from pipelines.studies.framework.results import Results

GUESSING = math.log(10)
"""Loss of a uniform prediction over ten classes, in nats."""
LOSS_TITLE = f"Training loss in the last epoch; guessing gives ln 10 = {GUESSING:.3f}"
BLOCK, EPOCH = "block, from the input", "epoch (0: before training)"


class Line(NamedTuple):
    """Appearance of an arm in a figure."""

    arm: str
    label: str
    colour: Any
    style: str = "-"


def runs_and_mean(axes: Any, x: Any, runs: np.ndarray, line: Line, *, centre: Any = np.mean, **options: Any) -> None:
    """Draws each run as a thin line and their mean as a thick one.

    Args:
        axes: where to draw.
        x: x coordinates of the values.
        runs: float [runs, values].
        line: colour, style and label.
        centre: reduces the runs along an axis, such as `np.mean` or `np.median`.
        options: plot options of the thick line.
    """
    if len(runs) > 1:
        axes.plot(x, runs.T, line.style, color=line.colour, lw=0.8, alpha=0.5)
    axes.plot(x, centre(runs, axis=0), line.style, color=line.colour, label=line.label, **options)


def thin(results: Results, centre: str = "means") -> str:
    """Returns the caption for `runs_and_mean`; empty if no arm has several runs."""
    return f"Thin lines are single seeds, thick lines their {centre}." if results.several else ""


def mark_guessing(axes: Any) -> None:
    """Draws the loss of uniform guessing as a dashed line."""
    axes.axhline(GUESSING, color=GREY, ls="--", lw=1, label="guessing, ln 10")


def sweep(axes: Any, results: Results, lines: Mapping[int, Sequence[Line]]) -> None:
    """Draws test accuracy over depth: each run and the means.

    Args:
        axes: where to draw.
        results: results of all runs.
        lines: arms at each depth; means of arms that share a label are joined by a line.
    """
    for look in dict.fromkeys(line._replace(arm="") for arms in lines.values() for line in arms):
        means = {}
        for depth, arms in lines.items():
            scores = [score for line in arms if line.label == look.label for score in results.accuracies(line.arm)]
            if scores:
                means[depth] = np.mean(scores)
                axes.plot([depth] * len(scores), scores, "o", color=look.colour, ms=3, alpha=0.4)
        if means:
            ends = {"color": look.colour, "marker": "o", "ms": 5, "label": look.label}
            axes.plot(list(means), list(means.values()), look.style, **ends)
    if results.several:
        axes.plot([], [], "o", color=GREY, ms=3, alpha=0.4, label="a run; lines join means")
    axes.axhline(0.1, color=GREY, ls="--", lw=1, label="ten equal classes by chance")
    listed_ticks(axes.xaxis, list(lines))
    axes.set_xlabel("blocks")
    share_axis(axes)
    axes.set_ylabel("test accuracy")


def loss_panels(figure: Any, results: Results, panels: Mapping[str, Sequence[Line]], *, log: bool = True) -> None:
    """Draws mean training losses over epochs, side by side on one scale, with the loss of guessing.

    Args:
        figure: an empty figure.
        results: results of all runs.
        panels: arms of each panel, by panel title.
        log: whether the axis of losses is logarithmic.
    """
    row = figure.subplots(1, len(panels), sharey=True)
    for axes, (title, lines) in zip(row, panels.items(), strict=True):
        for line in lines:
            losses = results.curves(line.arm, "loss")
            if losses.size:
                epochs = np.arange(1, losses.shape[1] + 1)
                axes.plot(
                    epochs, losses.mean(axis=0), line.style, color=line.colour, marker="o", ms=3, label=line.label
                )
        mark_guessing(axes)
        axes.set_title(title)
        axes.set_xlabel("epoch")
        whole_ticks(axes.xaxis, 6)
    row[0].set_ylabel(f"training loss{', mean over seeds' if results.several else ''}")
    if log:
        log_ticks(row[0].yaxis)
    else:
        row[0].set_ylim(bottom=0)
    legend(figure)


def learning_curves(figure: Any, results: Results, lines: Sequence[Line], *, log: bool = False) -> None:
    """Draws training loss and training accuracy over epochs: each seed and the mean.

    Args:
        figure: an empty figure.
        results: results of all runs.
        lines: the arms.
        log: whether the axis of losses is logarithmic.
    """
    left, right = figure.subplots(1, 2)
    for axes, column in ((left, "loss"), (right, "accuracy")):
        for line in lines:
            values = results.curves(line.arm, column)
            if values.size:
                runs_and_mean(axes, np.arange(1, values.shape[1] + 1), values, line, marker="o", ms=3)
        axes.set_xlabel("epoch")
        axes.set_title(f"training {column}")
        whole_ticks(axes.xaxis)
    mark_guessing(left)
    if log:
        log_ticks(left.yaxis)
    else:
        left.set_ylim(bottom=0)
    share_axis(right)
    legend(figure)
