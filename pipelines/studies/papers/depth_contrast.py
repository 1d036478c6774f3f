"""Highway versus plain nets over depth on a small part of MNIST, after a NumPy study.

Command     highway reproduce depth-contrast
Net         a projection from 784 to 50 tanh units, then 5 to 100 blocks of 50 tanh units, highway (gate bias -2) or
            plain, and a softmax; weights U(±1/sqrt(fan_in))
Data        MNIST, 6,000 training and 2,000 test images, drawn from the seed as in the source; pixels in [-1, 1]
Published   test accuracies after the last epoch and training losses of 5 to 50 blocks, one run each, and three runs of
            30 blocks
Sources     https://cybertronai.github.io/schmidhuber-problems/highway-networks gives the whole training setup: Adam
            5e-3 with epsilon 1e-8, global clip at 5.0, batch 128, 12 epochs. We added the nets of 100 blocks
Measured    docs/results/depth-contrast
"""

from typing import Any

import numpy as np

from pipelines.core.plotting import BLUE, GREY, ORANGE, legend, shades, whole_ticks
from pipelines.studies.framework import gates, tables
from pipelines.studies.framework.curves import (
    BLOCK,
    GUESSING,
    LOSS_TITLE,
    Line,
    learning_curves,
    loss_panels,
    mark_guessing,
    sweep,
    thin,
)
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.shared.numpy_study import (
    ARMS,
    BIAS,
    BLOCKS,
    COLUMNS,
    DRAWS,
    KINDS,
    PUBLISHED,
    SHOWN,
    arm,
    comparison_table,
)

COLOURS = {"highway": BLUE, "plain": ORANGE}


def make_tables(results: Results) -> list[Table]:
    """Tabulates accuracy and loss over depth, next to the source's."""
    accuracies, losses = (
        tuple((str(blocks), *(cell for kind in KINDS for cell in cells(results, kind, blocks))) for blocks in BLOCKS)
        for cells in (_accuracy, _loss)
    )
    ours = tables.score_format([(row[1], row[3]) for row in accuracies])
    seeds = ", and over seeds" if results.several else ""
    return [
        Table(
            "Accuracy on test images, in percent",
            ("blocks", *COLUMNS),
            accuracies,
            f"ours: {ours}; a single number of the source is one run. Each of its three seeds draws its own images; "
            "our seeds cycle through these three draws",
        ),
        comparison_table(results),
        Table(
            LOSS_TITLE,
            ("blocks", *COLUMNS),
            losses,
            f"mean over the epoch, during which weights still change{seeds}; the source's is of seed 0",
        ),
    ]


def _accuracy(results: Results, kind: str, blocks: int) -> tuple[str, str]:
    known = STUDY.arms[arm(kind, blocks)].published
    return results.accuracy(arm(kind, blocks)), tables.spread(known.best, known.mean, known.std, known.count)


def _loss(results: Results, kind: str, blocks: int) -> tuple[str, str]:
    known = STUDY.arms[arm(kind, blocks)].published.loss
    return results.loss(arm(kind, blocks)), MISSING if known is None else f"{known:.3f}"


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study."""
    with figures.figure("depth_sweep", (8.2, 4.8), "Test accuracy over depth") as figure:
        axes = figure.subplots()
        sweep(axes, results, {blocks: [_line(kind, blocks) for kind in KINDS] for blocks in BLOCKS})
        source = [(blocks, known.best) for (_, blocks), known in PUBLISHED.items()]
        axes.plot(*zip(*source, strict=True), "kx", ms=7, mew=1.5, label="source, best run")
        legend(figure)
    with figures.figure("loss_collapse", (10, 4.6), "Training loss at every depth") as figure:
        depths = dict(zip(BLOCKS, shades(len(BLOCKS)), strict=True))
        loss_panels(
            figure,
            results,
            {kind: [Line(arm(kind, n), f"{n} blocks", shade) for n, shade in depths.items()] for kind in KINDS},
            log=False,
        )
    if all(results.accuracies(arm(kind, SHOWN)) for kind in KINDS):
        with figures.figure("learning_curves", (10, 4.4), f"Learning curves, {SHOWN} blocks", thin(results)) as figure:
            learning_curves(figure, results, [_line(kind, SHOWN) for kind in KINDS])
        opened = results.gates(arm("highway", SHOWN))
        gates.evolution(figures, opened.mean(axis=0), f"{SHOWN} blocks")
        gates.final(figures, opened[:, -1], BIAS, f"{SHOWN} blocks")
        animation(results, figures)


def _line(kind: str, blocks: int) -> Line:
    return Line(arm(kind, blocks), kind, COLOURS[kind])


def animation(results: Results, figures: Figures) -> None:
    """Animates the training of both nets: the loss so far, and the gates of the highway net."""
    losses = {kind: results.curves(arm(kind, SHOWN), "loss").mean(axis=0) for kind in KINDS}
    opened = results.gates(arm("highway", SHOWN)).mean(axis=0)
    blocks = np.arange(1, opened.shape[1] + 1)
    epochs = len(losses["highway"])
    top = 1.1 * max(GUESSING, *(float(loss.max()) for loss in losses.values()))

    def frame(figure: Any, epoch: int) -> None:
        left, right = figure.subplots(1, 2)
        for kind, loss in losses.items():
            left.plot(np.arange(1, epoch + 1), loss[:epoch], color=COLOURS[kind], marker="o", ms=4, label=kind)
        mark_guessing(left)
        left.set_xlim(0.5, epochs + 0.5)
        left.set_ylim(0, top)
        left.set_xlabel("epoch")
        left.set_title(f"training loss{', mean over seeds' if results.several else ''}")
        left.legend(loc="center right", fontsize=9)
        right.bar(blocks, opened[epoch], color=BLUE)
        right.plot(blocks, opened[0], color=GREY, ls="--", lw=1, label="before training")
        right.set_ylim(0, 1.1 * float(opened.max()))
        right.set_xlabel(BLOCK)
        right.set_title(f"mean gate, highway, epoch {epoch}")
        right.legend(loc="upper left", fontsize=9)
        for axes in (left, right):
            whole_ticks(axes.xaxis)

    figures.animation("training", (9, 3.9), f"Both nets in training, {SHOWN} blocks", frame, frames=epochs + 1)


STUDY = Study(
    name="depth-contrast",
    title="Highway against plain nets over depth",
    source="a NumPy study on a subset of MNIST, https://cybertronai.github.io/schmidhuber-problems/highway-networks",
    asks="does a highway net keep its accuracy as it gets deeper, where a plain net loses it?",
    arms=ARMS,
    seeds=3,
    draws=DRAWS,
    differs=(
        "Highway nets (bias -2) and plain nets of 50 units are also in depth-twins, with equal seeds and equal images. "
        "When these runs were made, JAX split each batch over as many devices as a run had cores, at every depth "
        "(since 951e757 from 16 layers on), which rounds differently: accuracies of two such runs differ by noise.",
        "The images are the source's, those of its seeds 0 to 2 in turn. Weights and the order of images are drawn "
        "differently, so that each run is a new one on the same images.",
        "An epoch has 46 whole batches of 128. The source drops the remaining images; here they start the next epoch.",
        "float32; the source uses float64. Keras adds Adam's epsilon to the root of the uncorrected second moment, the "
        "source to that of the corrected one.",
        "The source says that blocks near the input open further. The gates that it recorded (seed 0, 30 blocks) rise "
        "from 0.08 and 0.05 in the first two to 0.17 in the last two.",
        "The source has no nets of 100 blocks, and three seeds only at 30 blocks.",
    ),
    tables=make_tables,
    draw=draw_figures,
)
