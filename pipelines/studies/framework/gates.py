"""Mean transform gates of a net's blocks, drawn and told: on the way through training, and at its end."""

import math

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from pipelines.core.plotting import BLUE, GREY
from pipelines.core.statistics import correlation
from pipelines.studies.framework.figures import Figures

SLIGHT = 0.3
"""Correlation with the number of the block under which gates are said neither to rise nor to fall."""
WIDE = 30
"""Ratio of the largest gate to the smallest above which the colour scale is logarithmic."""


def evolution(figures: Figures, gates: np.ndarray, net: str) -> None:
    """Draws gate_evolution.png: the mean gate of each block, from before training on.

    Args:
        figures: where to.
        gates: means over seeds and examples, float [1 + epochs, blocks].
        net: what the title calls it.
    """
    title = f"Mean transform gate over training, {net}"
    with figures.figure("gate_evolution", (8.2, 4.8), title, told(gates)) as figure:
        axes = figure.subplots()
        epochs, blocks = np.arange(len(gates) + 1) - 0.5, np.arange(gates.shape[1] + 1) + 0.5
        # Gates that open a hundredfold in a few blocks would leave a linear scale black elsewhere.
        norm = LogNorm() if gates.max() > WIDE * gates.min() > 0 else None
        mesh = axes.pcolormesh(epochs, blocks, gates.T, cmap="viridis", norm=norm)
        axes.grid(visible=False)
        axes.set_xlabel("epoch (0: before training)")
        axes.xaxis.set_major_locator(MaxNLocator(13, integer=True, min_n_ticks=1))
        axes.set_ylabel("block, from the input")
        axes.yaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
        figure.colorbar(mesh, ax=axes, label="mean of T")


def told(gates: np.ndarray) -> str:
    """What mean gates did in training: float [1 + epochs, blocks]."""
    first, last = gates[0], gates[-1]
    third = max(1, len(last) // 3)
    opened, closed = int((last > first).sum()), int((last < first).sum())
    # Of gates that stay nearly closed, three decimals would say nothing.
    form = ".3f" if last.max() >= 0.05 else ".2g"
    return (
        f"The mean of T over all blocks goes from {first.mean():{form}} to {last.mean():{form}}: {opened} of "
        f"{len(last)} blocks end more open than they began, {closed} more closed. The first {third} blocks end at "
        f"{last[:third].mean():{form}}, the last {third} at {last[-third:].mean():{form}}; the most open is block "
        f"{last.argmax() + 1}, at {last.max():{form}}."
    )


def final(figures: Figures, gates: np.ndarray, bias: float, net: str) -> None:
    """Draws final_gates.png: the mean gate of each block after training, against what the initial bias alone makes.

    Args:
        figures: where to.
        gates: means over examples, of each seed, float [seeds, blocks].
        bias: of the gates before training.
        net: what the title calls it.
    """
    start = 1 / (1 + math.exp(-bias))
    title = f"Mean transform gate after training, {net}"
    with figures.figure("final_gates", (8.2, 4.6), title, told_against(gates, bias)) as figure:
        axes = figure.subplots()
        blocks = np.arange(1, gates.shape[1] + 1)
        several = len(gates) > 1
        axes.bar(blocks, gates.mean(axis=0), color=BLUE, alpha=0.35, label="mean over seeds" if several else "one seed")
        for number, seed in enumerate(gates if several else ()):
            axes.plot(blocks, seed, ".", color=BLUE, ms=5, label=None if number else "a seed")
        axes.axhline(start, color=GREY, ls="--", label=f"sigmoid({bias:g}) = {start:.3f}")
        axes.set_xlabel("block, from the input")
        axes.xaxis.set_major_locator(MaxNLocator(10, integer=True, min_n_ticks=1))
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("mean of T")
        axes.set_xlim(0.3, gates.shape[1] + 0.7)
        axes.set_ylim(top=1.2 * max(start, float(gates.max())))
        axes.legend(loc="upper right", ncols=3)


def told_against(gates: np.ndarray, bias: float) -> str:
    """What the mean gates after training are against their initial bias: float [seeds, blocks]."""
    start, mean = 1 / (1 + math.exp(-bias)), gates.mean(axis=0)
    order = correlation(np.arange(len(mean)), mean)
    trend = "rise" if order > SLIGHT else "fall" if order < -SLIGHT else "neither rise nor fall"
    return (
        f"{(mean > start).sum()} of {len(mean)} blocks end above sigmoid({bias:g}) = {start:.3f}, where the bias alone "
        f"puts them. From the input to the output the means {trend} (correlation with the number of the block "
        f"{order:+.2f})."
    )
