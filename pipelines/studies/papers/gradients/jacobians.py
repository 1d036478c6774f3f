"""Figures of the Jacobian of highway blocks: its identity part 1 - T, and what gets through many blocks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from pipelines.core.plotting import BLUE, GREY, ORANGE
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.words import ranged
from pipelines.studies.papers.gradients.reading import SHOWN, by_block, worst


def parts(results: Results, figures: Figures) -> None:
    """What the Jacobian of each highway block is made of, before and after training."""
    title = f"The Jacobian of a highway block, {SHOWN} blocks"
    with figures.figure("jacobian", (11, 4.4), title, parts_caption(results)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        _twice(panels, results, _parts)
        # Once both are drawn: it ends the search for the upper limit.
        panels[0].set_ylim(bottom=0)
        panels[0].set_ylabel("mean, or factor on the length of a gradient")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def _parts(axes: Any, values: Callable[[str], np.ndarray]) -> None:
    blocks = np.arange(1, SHOWN + 1)
    axes.plot(blocks, values("identity"), color=BLUE, label="1 - T, by the formula")
    axes.plot(blocks, values("diagonal"), "o", color="black", ms=4, mfc="none", label="diagonal, as measured")
    axes.plot(blocks, values("rest"), color=ORANGE, label="all but 1 - T")


def parts_caption(results: Results) -> str:
    """What the identity part is in the Jacobian."""
    names = ("identity", "diagonal", "rest")
    found = {name: by_block(results, "highway", SHOWN, name) for name in names}
    gap = np.abs(found["identity"] - found["diagonal"]).max(axis=1)
    told = [
        f"{when} training 1 - T is {ranged(found['identity'][time])} over the blocks, at most {gap[time]:.3f} from the "
        f"mean diagonal that was measured, and the rest scales a gradient by {ranged(found['rest'][time])}."
        for when, time in (("Before", 0), ("After", -1))
    ]
    return (
        f"{' '.join(told)} The whole Jacobian by the formula is within {worst(results, SHOWN):.1g} of the measured "
        "one, relative to its norm, at every block, image and epoch."
    )


def paths(results: Results, figures: Figures) -> None:
    """How much of a gradient gets from the last block to each one, in all and by 1 - T alone."""
    title = f"A gradient on its way down, {SHOWN} highway blocks"
    with figures.figure("paths", (11, 4.4), title, paths_caption(results)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        _twice(panels, results, _paths)
        panels[0].set_ylabel("factor on the length of a gradient")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def _paths(axes: Any, values: Callable[[str], np.ndarray]) -> None:
    blocks = np.arange(1, SHOWN + 1)
    axes.plot(blocks, values("gain"), color="black", label="all paths")
    axes.plot(blocks, values("path"), color=BLUE, label="1 - T alone")
    axes.axhline(1, color=GREY, ls="--", lw=1)
    axes.set_yscale("log")


def paths_caption(results: Results) -> str:
    """What gets from the output of the last block to the input of the first."""
    gain, path = (by_block(results, "highway", SHOWN, name)[:, 0] for name in ("gain", "path"))
    told = [
        f"{when} training all {SHOWN} blocks together scale a gradient by {gain[time]:.2g}, 1 - T alone by "
        f"{path[time]:.2g}."
        for when, time in (("Before", 0), ("After", -1))
    ]
    return f"From the output of the last block to the input of each. {' '.join(told)}"


def _at(results: Results, time: int, quantity: str) -> np.ndarray:
    return by_block(results, "highway", SHOWN, quantity)[time]


def _twice(panels: Any, results: Results, draw: Callable[[Any, Callable[[str], np.ndarray]], None]) -> None:
    """The same panel before and after training."""
    for axes, time, name in zip(panels, (0, -1), ("before training", "after training"), strict=True):
        draw(axes, partial(_at, results, time))
        axes.set_xlabel("block, from the input")
        axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
        axes.set_title(name)
