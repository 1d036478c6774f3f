"""Figures of a net's mean transform gates, block by block."""

import math

import numpy as np

from pipelines.core.plotting import BLUE, GREY, heat_map, whole_ticks
from pipelines.studies.framework.curves import BLOCK, EPOCH
from pipelines.studies.framework.figures import Figures

WIDE = 30
"""Ratio of the largest gate to the smallest above which the colour scale is logarithmic."""


def evolution(figures: Figures, gates: np.ndarray, net: str) -> None:
    """Draws gate_evolution.png: the mean gate of each block over training.

    Args:
        figures: receives the figure.
        gates: means over seeds and examples before training and after each epoch, float [1 + epochs, blocks].
        net: name of the net, for the title.
    """
    with figures.figure("gate_evolution", (8.2, 4.8), f"Mean transform gate over training, {net}") as figure:
        axes = figure.subplots()
        # On a linear scale, a few gates that open a hundredfold would leave all others black.
        norm = "log" if gates.max() > WIDE * gates.min() > 0 else "linear"
        mesh = heat_map(axes, gates.T, first=(1, 0), norm=norm)
        axes.set_xlabel(EPOCH)
        whole_ticks(axes.xaxis, 13)
        axes.set_ylabel(BLOCK)
        whole_ticks(axes.yaxis, 10)
        figure.colorbar(mesh, ax=axes, label="mean of T")


def final(figures: Figures, gates: np.ndarray, bias: float, net: str) -> None:
    """Draws final_gates.png: the mean gate of each block after training, and the value that its initial bias gives.

    Args:
        figures: receives the figure.
        gates: means over examples, float [seeds, blocks].
        bias: initial bias of the gates.
        net: name of the net, for the title.
    """
    start = 1 / (1 + math.exp(-bias))
    with figures.figure("final_gates", (8.2, 4.6), f"Mean transform gate after training, {net}") as figure:
        axes = figure.subplots()
        blocks = np.arange(1, gates.shape[1] + 1)
        several = len(gates) > 1
        axes.bar(blocks, gates.mean(axis=0), color=BLUE, alpha=0.35, label="mean over seeds" if several else "one seed")
        for number, seed in enumerate(gates if several else ()):
            axes.plot(blocks, seed, ".", color=BLUE, ms=5, label=None if number else "a seed")
        axes.axhline(start, color=GREY, ls="--", label=f"sigmoid({bias:g}) = {start:.3f}")
        axes.set_xlabel(BLOCK)
        whole_ticks(axes.xaxis, 10)
        axes.grid(visible=False, axis="x")
        axes.set_ylabel("mean of T")
        axes.set_xlim(0.3, gates.shape[1] + 0.7)
        axes.set_ylim(top=1.2 * max(start, float(gates.max())))
        axes.legend(loc="upper right", ncols=3)
