"""Figures of the gradient by block, and of the Jacobians of highway blocks."""

from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from pipelines.core.plotting import BLUE, GREEN, GREY, ORANGE, heat_map, legend, whole_ticks
from pipelines.studies.framework.curves import BLOCK, EPOCH, Line, runs_and_mean, thin
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.gradients.reading import BLOCKS, KINDS, SHOWN, by_block, reach
from pipelines.studies.shared.numpy_study import arm

COLOURS = {"highway": BLUE, "residual": GREEN, "plain": ORANGE}


def medians(results: Results) -> str:
    """Returns the caption of a figure of medians; empty if no arm has several runs."""
    return "Medians over seeds." if results.several else ""


def at_start(results: Results, figures: Figures) -> None:
    """Draws the norm of the gradient by block before training, one panel per depth."""
    title, caption = "Gradient by block before training", thin(results, "medians")
    with figures.figure("gradients_at_start", (11, 4.2), title, caption) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                rows = results.probed(arm(kind, blocks))
                if rows:
                    numbers = np.arange(1, blocks + 1)
                    runs = np.array([rows[f"kernel/{block}"][:, 0] for block in numbers]).T
                    line = Line(arm(kind, blocks), kind, COLOURS[kind])
                    runs_and_mean(axes, numbers, runs, line, centre=np.median)
            axes.set_yscale("log")
            _by_block(axes, f"{blocks} blocks")
        panels[0].set_ylabel("norm of the gradient, kernel of H")
        legend(figure)


def through_training(results: Results, figures: Figures) -> None:
    """Draws the norm of the gradient by block and epoch, one panel per kind, all on one scale."""
    known = {kind: norms for kind in KINDS if len(norms := by_block(results, kind, SHOWN, "kernel"))}
    title = f"Gradient by block through training, {SHOWN} blocks"
    with figures.figure("gradients_through_training", (11, 4.2), title, medians(results)) as figure:
        panels = figure.subplots(1, len(KINDS), sharey=True)
        positive = [norms[norms > 0] for norms in known.values()]
        scale = LogNorm(min(some.min() for some in positive), max(some.max() for some in positive))
        for axes, kind in zip(panels, KINDS, strict=True):
            lost = "every run diverged" if results.lost(arm(kind, SHOWN)) else "not run"
            axes.set_title(kind if kind in known else f"{kind}: {lost}")
            axes.grid(visible=False)
            axes.set_xlabel(EPOCH)
            whole_ticks(axes.xaxis, 7)
            if kind in known:
                mesh = heat_map(axes, np.ma.masked_less_equal(known[kind].T, 0), first=(1, 0), norm=scale)
        panels[0].set_ylabel(BLOCK)
        figure.colorbar(mesh, ax=panels, label="norm of the gradient, kernel of H")


def all_blocks(results: Results, figures: Figures) -> None:
    """Draws how much all blocks together scale the length of a gradient, over training."""
    title = "A gradient on its way through all blocks"
    with figures.figure("all_blocks", (11, 4.0), title, medians(results)) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                factors = reach(results, kind, blocks)
                axes.plot(np.arange(len(factors)), factors, color=COLOURS[kind], marker="o", ms=4, label=kind)
            axes.axhline(1, color=GREY, ls="--", lw=1, label="unchanged length")
            axes.set_yscale("log")
            axes.set_xlabel(EPOCH)
            whole_ticks(axes.xaxis, 7)
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("factor on its length")
        legend(figure)


def jacobian(results: Results, figures: Figures) -> None:
    """Draws the parts of the Jacobian of each highway block, before and after training."""
    title = f"The Jacobian of a highway block, {SHOWN} blocks"
    with figures.figure("jacobian", (11, 4.4), title, medians(results)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, values in _twice(panels, results, "identity", "diagonal", "rest"):
            blocks = np.arange(1, SHOWN + 1)
            axes.plot(blocks, values["identity"], color=BLUE, label="1 - T, by the formula")
            axes.plot(blocks, values["diagonal"], "o", color="black", ms=4, mfc="none", label="diagonal, as measured")
            axes.plot(blocks, values["rest"], color=ORANGE, label="all but 1 - T")
        # Only after both are drawn, because this turns off autoscaling of the upper limit.
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel("mean, or factor on the length of a gradient")
        legend(figure)


def paths(results: Results, figures: Figures) -> None:
    """Draws how much of a gradient at the last block reaches each block, in total and through 1 - T alone."""
    title = f"A gradient on its way back, {SHOWN} highway blocks"
    caption = f"From the output of the last block to the input of each. {medians(results)}".strip()
    with figures.figure("paths", (11, 4.4), title, caption) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, values in _twice(panels, results, "gain", "path"):
            blocks = np.arange(1, SHOWN + 1)
            axes.plot(blocks, values["gain"], color="black", label="all paths")
            axes.plot(blocks, values["path"], color=BLUE, label="1 - T alone")
            axes.axhline(1, color=GREY, ls="--", lw=1, label="unchanged length")
            axes.set_yscale("log")
        panels[0].set_ylabel("factor on the length of a gradient")
        legend(figure)


def _by_block(axes: Any, title: str) -> None:
    axes.set_xlabel(BLOCK)
    whole_ticks(axes.xaxis, 7)
    axes.set_title(title)


def _twice(panels: Any, results: Results, *quantities: str) -> list[tuple[Any, dict[str, np.ndarray]]]:
    """Pairs the panels before and after training with the quantities of each block at that time."""
    found = {name: by_block(results, "highway", SHOWN, name) for name in quantities}
    for axes, when in zip(panels, ("before training", "after training"), strict=True):
        _by_block(axes, when)
    return [
        (axes, {name: values[time] for name, values in found.items()})
        for axes, time in zip(panels, (0, -1), strict=True)
    ]
