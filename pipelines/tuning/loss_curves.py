"""Training losses of several nets over epochs, as the paper's Figure 1 shows them."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

BEST = 10
"""Trials of each net whose mean is shown, as in the paper."""


def compared(figure: Figure, losses: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draws the best trial of each net, and the mean of its ten best.

    Args:
        figure: an empty figure.
        losses: of the trials of each net, the best first, float [epochs] each; a net may have none. The first half of
            the nets is of one kind, the second of another, in the same order of depths.
    """
    left, right = figure.subplots(1, 2, sharey=True)
    depths = -(-len(losses) // 2)
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.9, depths))
    for number, (name, trials) in enumerate(losses.items()):
        if not trials:
            continue
        kept = trials[:BEST]
        style = {
            "color": colours[number % depths],
            "ls": "-" if number < depths else "--",
            "marker": "o" if number < depths else "s",
            "ms": 3,
            "label": f"{name} ({len(kept)})",
        }
        shortest = min(map(len, kept))
        epochs = np.arange(1, shortest + 1)
        left.plot(epochs, kept[0][:shortest], **style)
        right.plot(epochs, np.mean([loss[:shortest] for loss in kept], axis=0), **style)
    for axes, what in ((left, "best trial of each net"), (right, f"mean of its {BEST} best, or of as many as it has")):
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.set_title(what)
    scale(left)
    left.set_ylabel("training loss")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=9, handlelength=3.5)


def scale(axes: Any) -> None:
    """Makes the axis of losses logarithmic, if they are far enough apart for that.

    Args:
        axes: on which they are drawn.
    """
    low, high = axes.dataLim.intervaly
    if high > 5 * low > 0:
        axes.set_yscale("log")
        # Over many orders of magnitude each has one label, and room for no more.
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 500 * low else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
