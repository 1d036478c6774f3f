"""A dense highway net of 1,000 layers on MNIST, at four gate biases.

Command     highway reproduce thousand
Net         the net of the recipe mnist_dense_1000: one plain and 999 highway layers of 50 tanh units; gate bias -20,
            -10, -6 or -4
Data        MNIST, all 60,000 training images
Published   about 95% on test images at a gate bias of about -20 (a TensorFlow study of 2015)
Sources     those of the recipe. The bias of -20 is the source's; earlier trials had all four, with one seed each, and
            recorded the test accuracy after 1, 2 and 3 epochs
Measured    docs/results/thousand
"""

import math
from pathlib import Path

import numpy as np

from pipelines import recipes
from pipelines.core.config import Provenance
from pipelines.core.plotting import legend, shades, share_axis, whole_ticks
from pipelines.core.run import Run
from pipelines.studies.framework import gates, tables
from pipelines.studies.framework.accuracy_probe import ACCURACY, LOSS, on_test
from pipelines.studies.framework.curves import GUESSING, Line, mark_guessing, runs_and_mean, thin
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import MNIST, Arm, Published, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.training.probe import Probe

RECIPE = recipes.get("mnist_dense_1000")
EARLIER = {
    -20.0: (0.923, 0.939, 0.949),
    -10.0: (0.942, 0.958, 0.965),
    -6.0: (0.939, 0.956, 0.964),
    # The record says only that it stayed at chance.
    -4.0: (),
}
"""Accuracy of earlier trials on test images after 1, 2 and 3 epochs, by gate bias; one seed each."""
BIASES = tuple(EARLIER)
EPOCHS = 3
SHOWN = -10.0
"""The recipe's bias, whose gates are drawn epoch by epoch."""
SOURCE = -20.0
"""The bias of the source."""


def arm(bias: float) -> str:
    """Returns the name of an arm."""
    return f"bias{bias:+g}"


def probe(run: Run, data_dir: Path | None) -> Probe:
    """Probes accuracy and loss on the test images, before training and after each half epoch."""
    steps = run.record.steps_per_epoch
    return on_test(run, data_dir, {half * steps // 2 for half in range(2 * run.config.epochs + 1)})


def make_tables(results: Results) -> list[Table]:
    """Tabulates accuracy after the first epochs next to earlier trials, and after training next to the source."""
    head = ("gate bias", *(cell for epoch in range(1, EPOCHS + 1) for cell in (f"after {epoch}", "earlier trial")))
    early = tuple((f"{bias:g}", *_first_epochs(results, bias)) for bias in BIASES)
    late = tuple((f"{bias:g}", *_at_the_end(results, bias)) for bias in BIASES)
    return [
        Table(
            "Accuracy on test images after 1, 2 and 3 epochs, in percent",
            head,
            early,
            f"{tables.score_format(early, tables.MEAN)}; earlier trials: one seed, same settings",
        ),
        Table(
            "After training",
            ("gate bias", "test accuracy, in percent", "source", "training loss in the last epoch"),
            late,
            f"accuracy: {tables.score_format(late)}; training loss: mean over the last epoch; guessing gives "
            f"ln 10 = {GUESSING:.3f}",
        ),
    ]


def _first_epochs(results: Results, bias: float) -> list[str]:
    """Returns the accuracy after each of the first epochs, alternating with that of an earlier trial."""
    ours = after_epochs(results, bias)
    cells = []
    for epoch in range(EPOCHS):
        reached = epoch < ours.shape[1]
        runs = len(results.of(arm(bias))) if reached or results.lost(arm(bias)) else 0
        cells.append(tables.measured(ours[:, epoch].tolist() if reached else [], runs, best=False))
        cells.append(f"{100 * EARLIER[bias][epoch]:.1f}" if EARLIER[bias] else "chance")
    return cells


def _at_the_end(results: Results, bias: float) -> tuple[str, str, str]:
    name = arm(bias)
    known = STUDY.arms[name].published.best
    source = MISSING if known is None else f"about {100 * known:.0f}"
    return results.accuracy(name), source, results.loss(name)


def after_epochs(results: Results, bias: float) -> np.ndarray:
    """Returns the test accuracy of each run after each epoch, float [runs, epochs]; empty if every run diverged."""
    rows = results.probed(arm(bias))
    if not rows:
        return np.empty((0, 0))
    steps = results.of(arm(bias))[0].run.record.steps_per_epoch
    return rows[ACCURACY][:, (rows["step"] > 0) & (rows["step"] % steps == 0)]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study; none if every run diverged."""
    if not any(results.accuracies(arm(bias)) for bias in BIASES):
        return
    training(results, figures)
    over_depth(results, figures)
    opened = results.gates(arm(SHOWN))
    if opened.size:
        gates.evolution(figures, opened.mean(axis=0), f"1,000 layers, bias {SHOWN:g}")


def training(results: Results, figures: Figures) -> None:
    """Draws accuracy and loss on the test images over training, and the accuracies of earlier trials."""
    with figures.figure("training", (11, 4.4), "1,000 layers in training", thin(results)) as figure:
        left, right = figure.subplots(1, 2)
        for bias, shade in zip(BIASES, shades(len(BIASES)), strict=True):
            rows = results.probed(arm(bias))
            if not rows:
                continue
            epochs = rows["step"] / results.of(arm(bias))[0].run.record.steps_per_epoch
            for axes, column in ((left, ACCURACY), (right, LOSS)):
                line = Line(arm(bias), f"bias {bias:g}", shade)
                runs_and_mean(axes, epochs, rows[column], line, marker="o", ms=3.5)
            known = EARLIER[bias]
            left.plot(range(1, len(known) + 1), known, "x", ms=7, mew=1.8, color=shade)
        left.plot([], [], "kx", ms=7, mew=1.8, label="earlier trial, one seed")
        share_axis(left)
        left.set_title("accuracy on test images")
        mark_guessing(right)
        right.set_ylim(bottom=0)
        right.set_title("loss on test images")
        for axes in (left, right):
            axes.set_xlabel("epoch")
            whole_ticks(axes.xaxis)
        legend(figure)


def over_depth(results: Results, figures: Figures) -> None:
    """Draws the mean gate of each layer after training, for each bias, and its value by the bias alone."""
    title = "Mean transform gate over 1,000 layers, after training"
    with figures.figure("gates_over_depth", (9.5, 4.8), title) as figure:
        axes = figure.subplots()
        for bias, shade in zip(BIASES, shades(len(BIASES)), strict=True):
            opened = results.gates(arm(bias))
            if opened.size:
                # The first layer is plain.
                layers = np.arange(2, opened.shape[2] + 2)
                axes.plot(layers, opened[:, -1].mean(axis=0), color=shade, lw=1.1, label=f"bias {bias:g}")
                axes.axhline(1 / (1 + math.exp(-bias)), color=shade, ls="--", lw=1)
        axes.set_yscale("log")
        axes.set_xlabel("layer, from the input")
        whole_ticks(axes.xaxis)
        axes.set_ylabel("mean of T")
        legend(figure, title="dashed: the bias alone")


def _arm(bias: float) -> Arm:
    config = RECIPE.config
    model = config.model.model_copy(update={"transform_bias": bias})
    own = ("model.transform_bias",)
    known = bias == SOURCE
    return Arm(
        config=config.model_copy(update={"recipe": arm(bias), "model": model, "precision": "float32"}),
        published=Published(best=0.95) if known else Published(),
        provenance=Provenance(
            recorded=(*RECIPE.provenance.recorded, *(own if known else ())),
            assumed=(*RECIPE.provenance.assumed, "precision", *(() if known else own)),
        ),
        data=MNIST,
    )


STUDY = Study(
    name="thousand",
    title="1,000 layers on MNIST",
    source="a TensorFlow study of 2015, and arXiv 1507.06228, section 2.2",
    asks="does a highway net of 1,000 layers learn, and what does its gate bias decide?",
    arms={arm(bias): _arm(bias) for bias in BIASES},
    seeds=3,
    differs=(
        "The source records depth, width, data and the bias of -20. Activation, optimizer, batch size and epochs are "
        "those of the recipe mnist_dense_1000.",
        "Test images are evaluated during training to compare with the accuracies of earlier trials; they do not "
        "influence training.",
    ),
    tables=make_tables,
    draw=draw_figures,
    probe=probe,
)
