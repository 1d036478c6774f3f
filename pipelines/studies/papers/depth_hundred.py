"""Nets of 100 blocks on all of MNIST: an open question of the study in numpy.

Command     highway reproduce depth-hundred
Net         as depth-twins, of 100 blocks alone
Data        MNIST, all 60 000 training images, pixels in [-1, 1]
Published   nothing
Sources     the training is that of depth-contrast, recorded for a tenth of the images and at most 50 blocks; depth,
            gate bias -4 and the nets beside highway and plain ones of 50 units are ours
Measured    2026-11-23, seed 0: test accuracy of highway nets 94.18 % (gate bias -4) and 86.10 % (-2), of residual nets
            80.79 % (71 units) and 77.87 % (50), plain nets guess (docs/results/depth-hundred); Keras 3.15.1, JAX
            0.10.2, float32, two cores of an AMD EPYC with avx512_bf16
"""

import math

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from pipelines.core.plotting import GREY
from pipelines.studies.framework import gates, tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers import nets
from pipelines.studies.papers.nets import NETS

BLOCKS = 100
GATED = "highway-low"
"""The net whose gates are shown."""


def tabulated(results: Results) -> list[Table]:
    """Accuracy and loss of each net."""

    def row(net: str) -> tuple[str, ...]:
        name = nets.name(net, BLOCKS)
        runs = results.of(name)
        return (
            NETS[net].title,
            results.parameters(name),
            tables.measured(results.accuracies(name), len(runs)),
            tables.mean([float(loss) for loss in results.curves(name, "loss")[..., -1:].ravel()]),
            tables.mean([one.run.record.seconds for one in runs], 0),
        )

    return [
        Table(
            "100 blocks on all of MNIST",
            ("net", "parameters", "accuracy on test images, in percent", "training loss", "seconds of training"),
            tuple(map(row, NETS)),
            "accuracy: best (mean +- standard deviation over seeds, n = runs); training loss: mean of the last epoch; "
            f"guessing makes ln 10 = {math.log(10):.3f}. Seconds are no comparison of nets: other work ran beside them",
        )
    ]


def drawn(results: Results, figures: Figures) -> None:
    """All figures of the study."""
    if not any(results.accuracies(arm) for arm in STUDY.arms):
        return
    learning(results, figures)
    name = nets.name(GATED, BLOCKS)
    if results.accuracies(name):
        opened = results.gates(name)
        gates.evolution(figures, opened.mean(axis=0), NETS[GATED].title)
        gates.final(figures, opened[:, -1], float(str(NETS[GATED].model.transform_bias)), NETS[GATED].title)


def learning(results: Results, figures: Figures) -> None:
    """Loss and accuracy in training."""
    caption = f"Thin lines are seeds, thick ones their means. {nets.best_and_guessing(results, BLOCKS)}"
    with figures.figure("learning_curves", (11, 4.4), "100 blocks on all of MNIST", caption) as figure:
        left, right = figure.subplots(1, 2)
        for axes, column in ((left, "loss"), (right, "accuracy")):
            for key, net in NETS.items():
                curves = results.curves(nets.name(key, BLOCKS), column)
                if not curves.size:
                    continue
                epochs = np.arange(1, curves.shape[1] + 1)
                axes.plot(epochs, curves.T, net.style, color=net.colour, lw=0.7, alpha=0.4)
                label = net.title if axes is left else None
                axes.plot(epochs, curves.mean(axis=0), net.style, color=net.colour, marker="o", ms=3, label=label)
            axes.set_xlabel("epoch")
            axes.set_title(f"training {column}")
            axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        left.axhline(math.log(10), color=GREY, ls="--", lw=1)
        nets.log_scale(left.yaxis)
        right.set_ylim(0, 1)
        right.yaxis.set_major_formatter(PercentFormatter(1.0))
        figure.legend(loc="outside right center", fontsize=9)


STUDY = Study(
    name="depth-hundred",
    title="100 blocks on all of MNIST",
    source="none; an open question of a study in numpy",
    asks="which nets of 100 blocks learn all of MNIST?",
    arms={nets.name(net, BLOCKS): nets.arm(net, BLOCKS, whole=True) for net in NETS},
    seeds=3,
    differs=(
        "The source has at most 50 blocks, on 6 000 images. The rate of Adam, the clip, batch and epochs are its own "
        "and were searched for none of these nets: another rate may suit another net better.",
        "The gate bias -4 is ours: the source has -2 at every depth, and the paper wants a lower one in deeper nets.",
    ),
    tables=tabulated,
    draw=drawn,
)
