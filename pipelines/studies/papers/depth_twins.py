"""Highway, residual and plain nets at matched depth and parameters: an open question of the study in numpy.

Command     highway reproduce depth-twins
Net         as depth-contrast, of 10, 30 and 100 blocks; beside the highway nets residual ones (x + H) and plain ones
            (H), of 50 units as these have, and of 71, which makes as many parameters a block
Data        as depth-contrast: 6 000 training and 2 000 test images of MNIST, drawn by the seed
Published   highway and plain nets of 50 units up to 30 blocks (depth-contrast); nothing of the others
Sources     the training is that of depth-contrast, recorded for its nets; for the others it is assumed, with the
            gate bias -4
Measured    seeds 0 to 2, mean test accuracy at 10, 30 and 100 blocks: highway with bias -2 91.3, 88.8 and 43.2 %, with
            -4 90.3, 91.3 and 89.9 %; residual of 50 units 87.2, 49.4 and 19.4 %, of 71 units 70.9, 25.7 and 21.0 %;
            plain of 50 units 31.8, 11.2 and 11.8 %, of 71 units 12.2, 10.4 and 11.8 %; versions and hardware as
            depth-contrast
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from pipelines.core.plotting import GREY
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers import nets, numpy_runs
from pipelines.studies.papers.nets import NETS

BLOCKS = (10, 30, 100)


def tabulated(results: Results) -> list[Table]:
    """Accuracy, loss and parameters of each net over depth."""

    def over_depth(title: str, cell: Callable[[str], str], note: str) -> Table:
        head = ("net", *(f"{blocks} blocks" for blocks in BLOCKS))
        rows = tuple((net.title, *(cell(nets.name(key, blocks)) for blocks in BLOCKS)) for key, net in NETS.items())
        return Table(title, head, rows, note)

    return [
        over_depth(
            "Accuracy on test images, in percent",
            lambda arm: tables.measured(results.accuracies(arm), len(results.of(arm))),
            "best (mean +- standard deviation over seeds, n = runs)",
        ),
        over_depth(
            f"Training loss in the last epoch; guessing makes ln 10 = {math.log(10):.3f}",
            lambda arm: tables.mean([float(loss) for loss in results.curves(arm, "loss")[..., -1:].ravel()]),
            "mean over seeds of the mean over the epoch",
        ),
        over_depth(
            "Parameters",
            results.parameters,
            "a wider twin has a wider projection too, so that the count of whole nets is nearest in deep ones",
        ),
    ]


def drawn(results: Results, figures: Figures) -> None:
    """All figures of the study."""
    if any(results.accuracies(arm) for arm in STUDY.arms):
        sweep(results, figures)
        losses(results, figures)


def sweep(results: Results, figures: Figures) -> None:
    """Test accuracy over depth: each run, and the means."""
    caption = " ".join(nets.best_and_guessing(results, blocks) for blocks in BLOCKS)
    with figures.figure("depth_sweep", (8.6, 4.8), "Test accuracy over depth", caption) as figure:
        axes = figure.subplots()
        for key, net in NETS.items():
            known = [(blocks, results.accuracies(nets.name(key, blocks))) for blocks in BLOCKS]
            known = [(blocks, scores) for blocks, scores in known if scores]
            for blocks, scores in known:
                axes.plot([blocks] * len(scores), scores, ".", color=net.colour, ms=4, alpha=0.5)
            means = [float(np.mean(scores)) for _, scores in known]
            axes.plot(
                [blocks for blocks, _ in known], means, net.style, color=net.colour, marker="o", ms=4, label=net.title
            )
        axes.set_xscale("log")
        axes.set_xticks(BLOCKS, [str(blocks) for blocks in BLOCKS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("blocks")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("test accuracy")
        figure.legend(loc="outside right center", fontsize=9)


def losses(results: Results, figures: Figures) -> None:
    """Training loss over epochs at each depth."""
    caption = (
        f"Means over seeds; dashed grey is the loss of guessing, ln 10 = {math.log(10):.3f}. "
        f"{' '.join(_ends(results, blocks) for blocks in BLOCKS)}"
    )
    with figures.figure("training_loss", (11, 4.4), "Training loss at equal depth", caption) as figure:
        lines: dict[str, Any] = {}
        for axes, blocks in zip(figure.subplots(1, len(BLOCKS), sharey=True), BLOCKS, strict=True):
            for key, net in NETS.items():
                curves = results.curves(nets.name(key, blocks), "loss")
                if curves.size:
                    epochs = np.arange(1, curves.shape[1] + 1)
                    lines[net.title], *_ = axes.plot(
                        epochs, curves.mean(axis=0), net.style, color=net.colour, marker="o", ms=3
                    )
            axes.axhline(math.log(10), color=GREY, ls="--", lw=1)
            axes.set_title(f"{blocks} blocks")
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(6, integer=True, min_n_ticks=1))
            if blocks == BLOCKS[0]:
                nets.log_scale(axes.yaxis)
                axes.set_ylabel("training loss")
        figure.legend(list(lines.values()), list(lines), loc="outside right center", fontsize=9)


def _ends(results: Results, blocks: int) -> str:
    """Where the training loss of the nets of a depth ends."""
    curves = {net.title: results.curves(nets.name(key, blocks), "loss") for key, net in NETS.items()}
    ends = {title: float(losses[:, -1].mean()) for title, losses in curves.items() if losses.size}
    if not ends:
        known = any(results.of(nets.name(key, blocks)) for key in NETS)
        return f"At {blocks} blocks every run diverged." if known else f"Nets of {blocks} blocks were not run."
    low, high = min(ends, key=ends.__getitem__), max(ends, key=ends.__getitem__)
    return f"At {blocks} blocks the lowest ends at {ends[low]:.3f}, {low}; the highest at {ends[high]:.3f}, {high}."


STUDY = Study(
    name="depth-twins",
    title="Highway, residual and plain nets at matched depth and parameters",
    source="none; an open question of a study in numpy",
    asks="what does a gate give that an addition does not, at equal depth and with equally many parameters?",
    arms={nets.name(net, blocks): nets.arm(net, blocks) for net in NETS for blocks in BLOCKS},
    seeds=3,
    draws=numpy_runs.DRAWS,
    differs=(
        "The source has highway and plain nets of 50 units alone; here are those runs again beside the others.",
        "The rate of Adam and the clip are the source's, recorded for highway and plain nets of 50 units. They were "
        "searched for none of the nets: another rate may suit another net better.",
        "The gate bias -4 is ours: the source has -2 at every depth, and the paper wants a lower one in deeper nets.",
    ),
    tables=tabulated,
    draw=drawn,
)
