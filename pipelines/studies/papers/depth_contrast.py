"""Highway against plain nets over depth on few digits, after a study in numpy.

Command     highway reproduce depth-contrast
Net         a projection from 784 to 50 tanh units, then 5 to 100 blocks of 50 tanh units, highway (gate bias -2) or
            plain, and a softmax; weights U(+-1/sqrt(fan_in))
Data        MNIST, 6 000 training and 2 000 test images, drawn by the seed as the source draws them; pixels in [-1, 1]
Published   test accuracies after the last epoch and training losses of 5 to 50 blocks, one run each, and three runs of
            30 blocks
Sources     https://cybertronai.github.io/schmidhuber-problems/highway-networks has all numbers of the training: Adam
            5e-3 with epsilon 1e-8, global clip at 5.0, batch 128, 12 epochs. Nets of 100 blocks are ours
Measured    seeds 0 to 35, mean test accuracies: highway 90.9, 90.6, 90.5, 90.3, 89.4 and 22.9 % at 5, 10, 20, 30, 50
            and 100 blocks (at 100 runs make 9.8 to 66.5 %), plain 86.8, 42.6, 11.5, 11.5, 11.4 and 11.5 %; 3 to 12 s
            a run on a core, Keras 3.15.1, JAX 0.10.2, float32, two cores of an Intel Xeon with amx_bf16
"""

import math
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator, NullLocator, PercentFormatter

from pipelines.core.config import Adam, Config, ModelConfig, Preprocess, Provenance, Subset
from pipelines.core.plotting import BLUE, GREY, ORANGE, shades
from pipelines.studies.framework import gates, tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Published, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.framework.words import listed, ranged
from pipelines.studies.papers import numpy_runs
from pipelines.studies.papers.numpy_runs import COLUMNS, DRAWS, KINDS, PUBLISHED, arm

BLOCKS = (5, 10, 20, 30, 50, 100)
SHOWN = 30
"""Blocks of the nets whose training is shown in detail, as in the source."""
GUESS = 0.15
"""Accuracy up to which a net is said to guess: always naming the commonest of the ten digits makes 0.11."""
HARDLY = 0.5
"""Mean accuracy under which nets that do not guess are told apart from those that learn."""
CLOSE = 0.02
"""Nats within which a loss is said to be that of guessing."""
BIAS = -2.0
COLOURS = {"highway": BLUE, "plain": ORANGE}

RECORDED = (
    "model.preset",
    "model.initializer",
    "data",
    "subset.train",
    "subset.test",
    "subset.seed",
    "preprocess.scale",
    "preprocess.offset",
    "optimizer.name",
    "optimizer.learning_rate",
    "optimizer.epsilon",
    "optimizer.clip_norm",
    "epochs",
    "batch_size",
)


def tabulated(results: Results) -> list[Table]:
    """Accuracy and loss over depth, each beside the source's."""
    accuracies, losses = (
        tuple((str(blocks), *(cell for kind in KINDS for cell in cells(results, kind, blocks))) for blocks in BLOCKS)
        for cells in (_accuracy, _loss)
    )
    return [
        Table(
            "Accuracy on test images, in percent",
            ("blocks", *COLUMNS),
            accuracies,
            "best (mean +- standard deviation over seeds, n = runs); one number of the source is one run of it. Its "
            "three seeds have images of their own, which ours take in turn",
        ),
        numpy_runs.beside(results),
        Table(
            f"Training loss in the last epoch; guessing makes ln 10 = {math.log(10):.3f}",
            ("blocks", *COLUMNS),
            losses,
            "mean over the epoch, in which the weights still change, and over seeds; the source's is that of seed 0",
        ),
    ]


def _accuracy(results: Results, kind: str, blocks: int) -> tuple[str, str]:
    name = arm(kind, blocks)
    known = STUDY.arms[name].published
    ours = tables.measured(results.accuracies(name), len(results.of(name)))
    return ours, tables.spread(known.best, known.mean, known.std, known.count)


def _loss(results: Results, kind: str, blocks: int) -> tuple[str, str]:
    known = STUDY.arms[arm(kind, blocks)].published.loss
    return tables.mean(_last(results, kind, blocks)), MISSING if known is None else f"{known:.3f}"


def _last(results: Results, kind: str, blocks: int) -> list[float]:
    """The training loss in the last epoch, of each run."""
    return [float(losses[-1]) for losses in results.curves(arm(kind, blocks), "loss")]


def drawn(results: Results, figures: Figures) -> None:
    """All figures of the study."""
    sweep(results, figures)
    collapse(results, figures)
    if all(results.accuracies(arm(kind, SHOWN)) for kind in KINDS):
        learning(results, figures)
        opened = results.gates(arm("highway", SHOWN))
        gates.evolution(figures, opened.mean(axis=0), f"{SHOWN} blocks")
        gates.final(figures, opened[:, -1], BIAS, f"{SHOWN} blocks")
        animation(results, figures)


def sweep(results: Results, figures: Figures) -> None:
    """Test accuracy over depth: each run, the means, and the source's runs."""
    caption = " ".join(filter(None, (sweep_caption(results), numpy_runs.caption(results))))
    with figures.figure("depth_sweep", (8.2, 4.8), "Test accuracy over depth", caption) as figure:
        axes = figure.subplots()
        for kind in KINDS:
            known = [(blocks, results.accuracies(arm(kind, blocks))) for blocks in BLOCKS]
            known = [(blocks, scores) for blocks, scores in known if scores]
            means = [(blocks, np.mean(scores)) for blocks, scores in known]
            axes.plot(*zip(*means, strict=True), color=COLOURS[kind], label=f"{kind}, mean")
            places = [blocks for blocks, scores in known for _ in scores]
            scores = [score for _, scores in known for score in scores]
            axes.plot(places, scores, "o", ms=5, color=COLOURS[kind], alpha=0.7, label=f"{kind}, a run")
            source = [(blocks, PUBLISHED[kind, blocks].best) for blocks in BLOCKS if (kind, blocks) in PUBLISHED]
            label = "source, best run" if kind == KINDS[-1] else None
            axes.plot(*zip(*source, strict=True), "x", ms=7, mew=1.5, color="black", label=label)
        axes.axhline(0.1, color=GREY, ls="--", lw=1)
        axes.text(BLOCKS[0], 0.085, "ten equal classes by chance", color=GREY, fontsize=9, va="top")
        axes.set_xscale("log")
        axes.set_xticks(BLOCKS, [str(blocks) for blocks in BLOCKS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_xlabel("blocks")
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylabel("test accuracy")
        figure.legend(loc="outside right center", fontsize=9)


def sweep_caption(results: Results) -> str:
    """What the runs show of accuracy over depth."""
    parts = []
    for kind in KINDS:
        known = {blocks: results.accuracies(arm(kind, blocks)) for blocks in BLOCKS}
        means = {blocks: float(np.mean(scores)) for blocks, scores in known.items() if scores}
        if any(results.lost(arm(kind, blocks)) for blocks in BLOCKS) and not means:
            parts.append(f"Every {kind} net diverged.")
        guessing = [blocks for blocks in means if max(known[blocks]) <= GUESS]
        hardly = [blocks for blocks in means if means[blocks] < HARDLY and blocks not in guessing]
        learning_ = [blocks for blocks in means if means[blocks] >= HARDLY]
        name = f"{kind.capitalize()} nets of"
        if learning_:
            reached = ranged([means[blocks] for blocks in learning_], ".1%")
            parts.append(f"{name} {listed(learning_)} blocks reach {reached}.")
        if hardly:
            reached = ranged([score for blocks in hardly for score in known[blocks]], ".1%")
            parts.append(f"{name} {listed(hardly)} blocks hardly learn: their runs reach {reached}.")
        if guessing:
            parts.append(f"{name} {listed(guessing)} blocks guess: no run is above {GUESS:.0%}.")
    return " ".join(parts)


def collapse(results: Results, figures: Figures) -> None:
    """Training loss over epochs at every depth, highway beside plain, against the loss of guessing."""
    title = "Training loss at every depth"
    with figures.figure("loss_collapse", (10, 4.6), title, collapse_caption(results)) as figure:
        lines: dict[str, Any] = {}
        for axes, kind in zip(figure.subplots(1, 2, sharey=True), KINDS, strict=True):
            for blocks, shade in zip(BLOCKS, shades(len(BLOCKS)), strict=True):
                losses = results.curves(arm(kind, blocks), "loss")
                if losses.size:
                    epochs = np.arange(1, losses.shape[1] + 1)
                    axes.plot(epochs, losses.mean(axis=0), color=shade, marker="o", ms=3, label=f"{blocks} blocks")
            axes.axhline(math.log(10), color=GREY, ls="--", lw=1, label="guessing, ln 10")
            axes.set_title(kind)
            axes.set_xlabel("epoch")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            axes.set_ylim(bottom=0)
            if kind == KINDS[0]:
                axes.set_ylabel("training loss, mean over seeds")
            handles, labels = axes.get_legend_handles_labels()
            lines |= dict(zip(labels, handles, strict=True))
        figure.legend(list(lines.values()), list(lines), loc="outside right center", fontsize=9)


def collapse_caption(results: Results) -> str:
    """What the runs show of the training loss at their end."""
    parts = []
    for kind in KINDS:
        means = {blocks: float(np.mean(last)) for blocks in BLOCKS if (last := _last(results, kind, blocks))}
        guessing = [blocks for blocks, loss in means.items() if loss > math.log(10) - CLOSE]
        # Half of what guessing makes.
        hardly = [blocks for blocks, loss in means.items() if loss > math.log(10) / 2 and blocks not in guessing]
        learning_ = [blocks for blocks in means if blocks not in (*guessing, *hardly)]
        for blocks in (learning_, hardly):
            if blocks:
                ends = ranged(means[number] for number in blocks)
                parts.append(f"{kind.capitalize()} nets of {listed(blocks)} blocks end at {ends}.")
        if guessing:
            parts.append(
                f"{kind.capitalize()} nets of {listed(guessing)} blocks end within {CLOSE} of ln 10 = "
                f"{math.log(10):.3f}, which guessing makes, or above it."
            )
    return " ".join(parts)


def learning(results: Results, figures: Figures) -> None:
    """Loss and accuracy in training of both nets, each seed and the mean."""
    title = f"Learning curves, {SHOWN} blocks"
    with figures.figure("learning_curves", (10, 4.4), title, learning_caption(results)) as figure:
        left, right = figure.subplots(1, 2)
        for axes, column in ((left, "loss"), (right, "accuracy")):
            for kind in KINDS:
                curves = results.curves(arm(kind, SHOWN), column)
                epochs = np.arange(1, curves.shape[1] + 1)
                axes.plot(epochs, curves.T, color=COLOURS[kind], lw=0.8, alpha=0.5)
                axes.plot(epochs, curves.mean(axis=0), color=COLOURS[kind], marker="o", ms=4, label=kind)
            axes.set_xlabel("epoch")
            axes.set_title(f"training {column}")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            axes.set_ylim(bottom=0)
            axes.legend(loc="center right")
        right.set_ylim(0, 1)
        right.yaxis.set_major_formatter(PercentFormatter(1.0))


def learning_caption(results: Results) -> str:
    """What the runs show of the training at `SHOWN` blocks."""
    parts = [f"{kind} {ranged(results.curves(arm(kind, SHOWN), 'accuracy')[:, -1], '.1%')}" for kind in KINDS]
    return f"Thin lines are seeds, thick ones their means. Training accuracy in the last epoch: {', '.join(parts)}."


def animation(results: Results, figures: Figures) -> None:
    """The training of both nets, epoch by epoch: the loss so far, and the gates of the highway net."""
    losses = {kind: results.curves(arm(kind, SHOWN), "loss").mean(axis=0) for kind in KINDS}
    opened = results.gates(arm("highway", SHOWN)).mean(axis=0)
    blocks = np.arange(1, opened.shape[1] + 1)
    epochs = len(losses["highway"])
    top = 1.1 * max(math.log(10), *(float(loss.max()) for loss in losses.values()))

    def frame(figure: Any, epoch: int) -> None:
        left, right = figure.subplots(1, 2)
        for kind, loss in losses.items():
            left.plot(np.arange(1, epoch + 1), loss[:epoch], color=COLOURS[kind], marker="o", ms=4, label=kind)
        left.axhline(math.log(10), color=GREY, ls="--", lw=1, label="guessing")
        left.set_xlim(0.5, epochs + 0.5)
        left.set_ylim(0, top)
        left.set_xlabel("epoch")
        left.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        left.set_title("training loss")
        left.legend(loc="center right", fontsize=9)
        right.bar(blocks, opened[epoch], color=BLUE)
        right.plot(blocks, opened[0], color=GREY, ls="--", lw=1)
        right.set_ylim(0, 1.1 * float(opened.max()))
        right.set_xlabel("block, from the input")
        right.xaxis.set_major_locator(MaxNLocator(8, integer=True))
        right.set_title(f"mean gate, highway, epoch {epoch}" if epoch else "mean gate, highway, before training")

    ends = ", ".join(f"{kind} {loss[-1]:.3f}" for kind, loss in losses.items())
    caption = (
        f"Epoch by epoch, means over seeds: the training loss of both nets, which ends at {ends}, and the mean gate of "
        "each block of the highway net (dashed: before training). The plain net has no gates."
    )
    title = f"Both nets in training, {SHOWN} blocks"
    figures.animation("training", (9, 3.9), title, caption, frame, frames=epochs + 1)


def _arm(kind: str, blocks: int) -> Arm:
    gated = kind == "highway"
    known = (kind, blocks) in PUBLISHED
    depth = ("model.depth", "model.transform_bias" if gated else "model.match")
    return Arm(
        config=Config(
            recipe=arm(kind, blocks),
            model=ModelConfig(
                preset="mnist_dense_50" if gated else "mnist_dense_50_plain",
                # The projection counts as a layer.
                depth=blocks + 1,
                transform_bias=BIAS if gated else None,
                match=None if gated else "width",
                initializer="fan_in_uniform",
            ),
            data="mnist",
            subset=Subset(train=6000, test=2000, seed=0),
            preprocess=Preprocess(scale=2 / 255, offset=-1.0),
            optimizer=Adam(learning_rate=0.005, epsilon=1e-8, clip_norm=5.0),
            epochs=12,
            batch_size=128,
            precision="float32",
        ),
        published=PUBLISHED.get((kind, blocks), Published()),
        provenance=Provenance(
            recorded=(*RECORDED, *depth) if known else RECORDED,
            assumed=("precision",) if known else ("precision", *depth),
        ),
    )


STUDY = Study(
    name="depth-contrast",
    title="Highway against plain nets over depth",
    source="a study in numpy on a subset of MNIST, https://cybertronai.github.io/schmidhuber-problems/highway-networks",
    asks="does a highway net keep its accuracy as it gets deeper, where a plain one loses it?",
    arms={arm(kind, blocks): _arm(kind, blocks) for kind in KINDS for blocks in BLOCKS},
    seeds=3,
    draws=DRAWS,
    differs=(
        "The images are the source's, those of its seeds 0 to 2 in turn. Weights and the order of the images are drawn "
        "otherwise, so that each run is another one on the same images.",
        "An epoch has 46 whole batches of 128. The source leaves out what is left over; here it opens the next epoch.",
        "float32, where the source computes in float64; and Keras adds Adam's epsilon to the root of the raw second "
        "moment, the source to that of the corrected one.",
        "The source says that blocks near the input open further. The gates that it recorded (seed 0, 30 blocks) rise "
        "from 0.08 and 0.05 in the first two to 0.17 in the last two.",
        "100 blocks are not in the source, and it has three seeds at 30 blocks alone.",
    ),
    tables=tabulated,
    draw=drawn,
)
