"""Figures of the norm of the gradient by block and of what gets through all blocks, before training and through it."""

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from pipelines.core.plotting import BLUE, GREEN, GREY, ORANGE
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.words import listed, ranged
from pipelines.studies.papers.gradients.reading import BLOCKS, KINDS, SHOWN, arm, by_block, reach

COLOURS = {"highway": BLUE, "residual": GREEN, "plain": ORANGE}


def at_start(results: Results, figures: Figures) -> None:
    """The norm of the gradient by block before training, a panel for each depth."""
    with figures.figure(
        "gradients_at_start", (11, 4.2), "Gradient by block before training", start_caption(results)
    ) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                rows = results.watched(arm(kind, blocks))
                if rows:
                    runs = np.array([rows[f"kernel/{block}"][:, 0] for block in range(1, blocks + 1)])
                    axes.plot(np.arange(1, blocks + 1), runs, color=COLOURS[kind], lw=0.8, alpha=0.5)
                    axes.plot(np.arange(1, blocks + 1), np.median(runs, axis=1), color=COLOURS[kind], label=kind)
            axes.set_xlabel("block, from the input")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            axes.set_yscale("log")
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("norm of the gradient, kernel of H")
        _legend(figure)


def _legend(figure: Any) -> None:
    """Of all lines, each name once: a net may not be there at every depth."""
    lines = {
        line.get_label(): line for axes in figure.axes for line in axes.lines if not line.get_label().startswith("_")
    }
    figure.legend(list(lines.values()), list(lines), loc="outside right center", fontsize=9)


def start_caption(results: Results) -> str:
    """What the gradients are before training."""
    return f"Thin lines are seeds, thick ones their medians. {_told(results, 0)}"


def _told(results: Results, time: int) -> str:
    """The norms over the blocks, before training (0) or after it (-1)."""
    parts = []
    for kind in KINDS:
        known = {blocks: norms[time] for blocks in BLOCKS if len(norms := by_block(results, kind, blocks, "kernel"))}
        if known:
            values = listed(ranged(norms, ".2g") for norms in known.values())
            parts.append(f"in {kind} nets of {listed(known)} blocks {values}")
    return f"{'Before' if time == 0 else 'After'} training the norms over the blocks are {'; '.join(parts)}."


def through_training(results: Results, figures: Figures) -> None:
    """The norm of the gradient by block and epoch, a panel for each kind, with one scale."""
    known = {kind: norms for kind in KINDS if len(norms := by_block(results, kind, SHOWN, "kernel"))}
    title = f"Gradient by block through training, {SHOWN} blocks"
    caption = f"{_told(results, -1)} One scale for all; medians over seeds."
    with figures.figure("gradients_through_training", (11, 4.2), title, caption) as figure:
        panels = figure.subplots(1, len(KINDS), sharey=True)
        positive = [norms[norms > 0] for norms in known.values()]
        scale = LogNorm(min(some.min() for some in positive), max(some.max() for some in positive))
        for axes, kind in zip(panels, KINDS, strict=True):
            lost = "every run diverged" if results.lost(arm(kind, SHOWN)) else "not run"
            axes.set_title(kind if kind in known else f"{kind}: {lost}")
            axes.grid(visible=False)
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            if kind in known:
                epochs, blocks = np.arange(len(known[kind]) + 1) - 0.5, np.arange(SHOWN + 1) + 0.5
                values = np.ma.masked_less_equal(known[kind].T, 0)
                mesh = axes.pcolormesh(epochs, blocks, values, cmap="viridis", norm=scale)
        panels[0].set_ylabel("block, from the input")
        figure.colorbar(mesh, ax=panels, label="norm of the gradient, kernel of H")


def all_blocks(results: Results, figures: Figures) -> None:
    """How much of a gradient gets through all blocks, through training."""
    title = "A gradient on its way through all blocks"
    with figures.figure("all_blocks", (11, 4.0), title, all_blocks_caption(results)) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                factors = reach(results, kind, blocks)
                axes.plot(np.arange(len(factors)), factors, color=COLOURS[kind], marker="o", ms=4, label=kind)
            axes.axhline(1, color=GREY, ls="--", lw=1)
            axes.set_yscale("log")
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("factor on its length, median over seeds")
        _legend(figure)


def all_blocks_caption(results: Results) -> str:
    """What gets through all blocks before and after training, and what became of the accuracy."""
    parts = []
    for kind in KINDS:
        told = []
        for blocks in BLOCKS:
            factors, scores = reach(results, kind, blocks), results.accuracies(arm(kind, blocks))
            if scores:
                told.append(f"{factors[0]:.2g} to {factors[-1]:.2g} at {blocks} ({np.mean(scores):.1%})")
        parts += [f"of {kind} blocks from {listed(told)}"] if told else []
    return (
        "The factor on the length of a gradient of random direction goes, from before training to after it, for the "
        f"number of blocks at hand (in brackets the test accuracy), {'; '.join(parts)}."
    )
