"""Highway, residual and plain nets at matched depth and parameters: an open question of the NumPy study.

Command     highway reproduce depth-twins
Net         as in depth-contrast, with 10, 30 and 100 blocks; also residual nets (x + H) and plain nets (H) with 50
            units like the highway nets, or with 71, which gives as many parameters per block
Data        as in depth-contrast: 6,000 training and 2,000 test images of MNIST, drawn by the seed
Published   highway and plain nets of 50 units up to 30 blocks (depth-contrast); nothing about the others
Sources     the training is that of depth-contrast, recorded for its nets; for the others it is assumed, with the
            gate bias -4
Measured    docs/results/depth-twins
"""

from collections.abc import Callable

from pipelines.core.plotting import legend
from pipelines.studies.framework import tables
from pipelines.studies.framework.curves import LOSS_TITLE, loss_panels, sweep
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.shared import nets, numpy_study
from pipelines.studies.shared.nets import NETS

BLOCKS = (10, 30, 100)


def make_tables(results: Results) -> list[Table]:
    """Tabulates accuracy, loss and parameters of each net over depth."""

    def over_depth(title: str, cell: Callable[[str], str], note: str | None = None) -> Table:
        head = ("net", *(f"{blocks} blocks" for blocks in BLOCKS))
        rows = tuple((net.title, *(cell(nets.name(key, blocks)) for blocks in BLOCKS)) for key, net in NETS.items())
        return Table(title, head, rows, note or tables.score_format(rows))

    return [
        over_depth("Accuracy on test images, in percent", results.accuracy),
        over_depth(
            LOSS_TITLE,
            results.loss,
            f"mean over the epoch{' and over seeds' if results.several else ''}",
        ),
        over_depth(
            "Parameters",
            results.parameters,
            "a wider twin also has a wider projection, so that whole nets match best when they are deep",
        ),
    ]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study."""
    if any(results.accuracies(arm) for arm in STUDY.arms):
        lines = {blocks: nets.lines(blocks) for blocks in BLOCKS}
        with figures.figure("depth_sweep", (8.6, 4.8), "Test accuracy over depth") as figure:
            sweep(figure.subplots(), results, lines)
            legend(figure)
        with figures.figure("training_loss", (11, 4.4), "Training loss at equal depth") as figure:
            loss_panels(figure, results, {f"{blocks} blocks": each for blocks, each in lines.items()})


STUDY = Study(
    name="depth-twins",
    title="Highway, residual and plain nets at matched depth and parameters",
    source="none; an open question of the NumPy study",
    asks="what does a gate give that an addition does not, at equal depth and with equally many parameters?",
    arms={nets.name(net, blocks): nets.arm(net, blocks) for net in NETS for blocks in BLOCKS},
    seeds=3,
    draws=numpy_study.DRAWS,
    differs=(
        "Highway nets (bias -2) and plain nets of 50 units are also in depth-contrast, with equal seeds and equal "
        "images. When these runs were made, JAX split each batch over as many devices as a run had cores, at every "
        "depth (since 951e757 from 16 layers on), which rounds differently: accuracies of two such runs differ by "
        "noise.",
        "The source has only highway and plain nets of 50 units; they are repeated here.",
        "Learning rate and clipping are the source's, recorded for highway and plain nets of 50 units. They were tuned "
        "for none of the nets; another rate may suit another net better.",
        "The gate bias -4 is ours: the source has -2 at every depth, and the paper recommends a lower one for deeper "
        "nets.",
    ),
    tables=make_tables,
    draw=draw_figures,
)
