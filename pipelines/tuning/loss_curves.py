"""Training losses of several nets over epochs, as in the paper's Figure 1."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from pipelines.core.plotting import loss_axis, shades, whole_ticks

BEST = 10
"""Number of trials per net in the mean, as in the paper."""


def draw_losses(figure: Figure, losses: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draws the best trial of each net and the mean of its ten best.

    Args:
        figure: an empty figure.
        losses: losses of each net's trials, best first, float [epochs] each; may be empty. The first half of the nets
            is of one kind, the second half of another, with depths in the same order.
    """
    left, right = figure.subplots(1, 2, sharey=True)
    depths = -(-len(losses) // 2)
    colours = shades(depths)
    for number, (name, trials) in enumerate(losses.items()):
        if not trials:
            continue
        best = trials[:BEST]
        style = {
            "color": colours[number % depths],
            "ls": "-" if number < depths else "--",
            "marker": "o" if number < depths else "s",
            "ms": 3,
            "label": f"{name} ({len(best)})",
        }
        shortest = min(map(len, best))
        epochs = np.arange(1, shortest + 1)
        left.plot(epochs, best[0][:shortest], **style)
        right.plot(epochs, np.mean([loss[:shortest] for loss in best], axis=0), **style)
    for axes, title in ((left, "best trial of each net"), (right, f"mean of the {BEST} best trials, or all if fewer")):
        axes.set_xlabel("epoch")
        whole_ticks(axes.xaxis)
        axes.set_title(title)
    loss_axis(left)
    left.set_ylabel("training loss")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=9, handlelength=3.5)
