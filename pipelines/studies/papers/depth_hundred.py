"""Nets of 100 blocks on all of MNIST: an open question of the NumPy study.

Command     highway reproduce depth-hundred
Net         as in depth-twins, with 100 blocks only
Data        MNIST, all 60,000 training images, pixels in [-1, 1]
Published   nothing
Sources     the training is that of depth-contrast, recorded for a tenth of the images and at most 50 blocks; depth,
            gate bias -4 and all nets except the 50-unit highway and plain ones are our additions
Measured    docs/results/depth-hundred
"""

from pipelines.studies.framework import gates, tables
from pipelines.studies.framework.curves import GUESSING, learning_curves, thin
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.shared import nets
from pipelines.studies.shared.nets import NETS

BLOCKS = 100
GATED = "highway-low"
"""The net whose gates are shown."""


def make_tables(results: Results) -> list[Table]:
    """Tabulates accuracy and loss of each net."""

    def row(net: str) -> tuple[str, ...]:
        name = nets.name(net, BLOCKS)
        runs = results.of(name)
        return (
            NETS[net].title,
            results.parameters(name),
            results.accuracy(name),
            results.loss(name),
            tables.mean([one.run.record.seconds for one in runs if not one.diverged], len(runs), digits=0),
        )

    rows = tuple(map(row, NETS))
    return [
        Table(
            "100 blocks on all of MNIST",
            ("net", "parameters", "accuracy on test images, in percent", "training loss", "seconds of training"),
            rows,
            f"accuracy: {tables.score_format(rows)}; training loss: mean over the last epoch; guessing gives "
            f"ln 10 = {GUESSING:.3f}. Seconds are not comparable between nets: other work ran at the same time",
        )
    ]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study."""
    if not any(results.accuracies(arm) for arm in STUDY.arms):
        return
    with figures.figure("learning_curves", (11, 4.4), "100 blocks on all of MNIST", thin(results)) as figure:
        learning_curves(figure, results, nets.lines(BLOCKS), log=True)
    name = nets.name(GATED, BLOCKS)
    if results.accuracies(name):
        opened = results.gates(name)
        gates.evolution(figures, opened.mean(axis=0), NETS[GATED].title)
        gates.final(figures, opened[:, -1], float(str(NETS[GATED].model.transform_bias)), NETS[GATED].title)


STUDY = Study(
    name="depth-hundred",
    title="100 blocks on all of MNIST",
    source="none; an open question of the NumPy study",
    asks="which nets of 100 blocks learn all of MNIST?",
    arms={nets.name(net, BLOCKS): nets.arm(net, BLOCKS, whole=True) for net in NETS},
    seeds=3,
    differs=(
        "Compared with depth-twins, these nets see ten times the images and take ten times the steps (5,616 instead of "
        "552). Which of the two makes the difference was not measured.",
        "The source has at most 50 blocks, on 6,000 images. Learning rate, clipping, batch size and epochs are its own "
        "and were tuned for none of these nets; another rate may suit another net better.",
        "The gate bias -4 is ours: the source has -2 at every depth, and the paper recommends a lower one for deeper "
        "nets.",
    ),
    tables=make_tables,
    draw=draw_figures,
)
