"""Figures of the norm of the gradient by block: before training, and through it."""

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from pipelines.figures import BLUE, GREY, ORANGE
from pipelines.studies.gradients.reading import BLOCKS, KINDS, SHOWN, arm, by_block, reach
from pipelines.studies.pictures import Pictures
from pipelines.studies.results import Results
from pipelines.studies.words import listed

GREEN = "#009E73"
COLOURS = {"highway": BLUE, "residual": GREEN, "plain": ORANGE}


def at_start(results: Results, pictures: Pictures) -> None:
    """The norm of the gradient by block before training, a panel for each depth."""
    with pictures.figure(
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
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def start_caption(results: Results) -> str:
    """What the gradients are before training."""
    return f"Thin lines are seeds, thick ones their medians. {_told(results, 0)}"


def _told(results: Results, time: int) -> str:
    """The gradient in the first block over that in the last, before training (0) or after it (-1)."""
    parts = []
    for kind in KINDS:
        known = {blocks: ratio[time] for blocks in BLOCKS if len(ratio := reach(results, kind, blocks))}
        if known:
            values = listed(f"{ratio:.2g}" for ratio in known.values())
            parts.append(f"in {kind} nets of {listed(known)} blocks {values}")
    when = "Before" if time == 0 else "After"
    return f"{when} training the norm in the first block over that in the last is {'; '.join(parts)}." if parts else ""


def through_training(results: Results, pictures: Pictures) -> None:
    """The norm of the gradient by block and epoch, a panel for each kind, with one scale."""
    known = {kind: norms for kind in KINDS if len(norms := by_block(results, kind, SHOWN, "kernel"))}
    title = f"Gradient by block through training, {SHOWN} blocks"
    caption = f"{_told(results, -1)} One scale for all; medians over seeds."
    with pictures.figure("gradients_through_training", (11, 4.2), title, caption) as figure:
        panels = figure.subplots(1, len(KINDS), sharey=True)
        positive = [norms[norms > 0] for norms in known.values()]
        scale = LogNorm(min(some.min() for some in positive), max(some.max() for some in positive))
        for axes, kind in zip(panels, KINDS, strict=True):
            axes.set_title(kind if kind in known else f"{kind}: every run diverged")
            axes.grid(visible=False)
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            if kind in known:
                epochs, blocks = np.arange(len(known[kind]) + 1) - 0.5, np.arange(SHOWN + 1) + 0.5
                values = np.ma.masked_less_equal(known[kind].T, 0)
                mesh = axes.pcolormesh(epochs, blocks, values, cmap="viridis", norm=scale)
        panels[0].set_ylabel("block, from the input")
        figure.colorbar(mesh, ax=panels, label="norm of the gradient, kernel of H")


def first_over_last(results: Results, pictures: Pictures) -> None:
    """How much of the gradient gets to the first block, through training."""
    title = "Gradient in the first block over that in the last"
    with pictures.figure("first_over_last", (11, 4.0), title, last_caption(results)) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                ratio = reach(results, kind, blocks)
                axes.plot(np.arange(len(ratio)), ratio, color=COLOURS[kind], marker="o", ms=4, label=kind)
            axes.axhline(1, color=GREY, ls="--", lw=1)
            axes.set_yscale("log")
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("ratio of norms, median over seeds")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def last_caption(results: Results) -> str:
    """Where the nets end, and what became of their accuracy."""
    parts = []
    for kind in KINDS:
        scores = {blocks: results.accuracies(arm(kind, blocks)) for blocks in BLOCKS}
        means = [f"{np.mean(some):.1%}" if some else "diverged" for some in scores.values()]
        parts.append(f"{kind} {listed(means)}")
    return f"{_told(results, -1)} Test accuracy at {listed(BLOCKS)} blocks: {'; '.join(parts)}."
