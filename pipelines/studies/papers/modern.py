"""The paper's numbers of parameters, trained with what has been learned since 2015.

Command     highway reproduce modern      (--schedule short: what each piece is worth, on CIFAR-10)
Net         ten convolutions with batch normalization on MNIST, eleven wide layers on CIFAR-10 and CIFAR-100; short:
            that for CIFAR-10 with less than a third of its channels, as in conv-gate
Data        all images, 1,000 of the training images held out; short: 5,000, on which the pieces are compared
Published   the nets of Tables 1 and 3, which have as many parameters
Sources     all numbers are ours: those of the recipes (`recipes.modern`), and the changes in `PIECES`
Measured    docs/results/modern (CIFAR-10 and CIFAR-100) and docs/results/modern-short (the pieces)
"""

import math
import statistics
from collections.abc import Mapping
from typing import Any, NamedTuple

from pipelines import recipes
from pipelines.core.config import Config, Provenance
from pipelines.core.frozen import Frozen, flat
from pipelines.core.optimizers import AdamW, ConstantSchedule, Lion, Muon
from pipelines.core.plotting import BLUE
from pipelines.studies.framework import paper_tables, tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import CIFAR, MNIST, Arm, Counts, Published, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers import cifar10, cifar100, mnist
from pipelines.studies.papers.conv_gate.nets import WIDTH


class ModernNet(NamedTuple):
    """A net of today, and the paper's of the same size."""

    data: str
    recipe: str
    counts: Counts
    paper: str
    published: Published


NETS = {
    "mnist": ModernNet("MNIST", "mnist_conv_32_modern", MNIST, "the paper's width 32", mnist.NETS[1].published),
    "cifar10": ModernNet("CIFAR-10", "cifar10_modern", CIFAR, "the paper's 19 layers", cifar10.PUBLISHED),
    "cifar100": ModernNet("CIFAR-100", "cifar100_modern", CIFAR, "the paper's 19 layers", cifar100.PUBLISHED),
}
HELD_OUT = 1000

# The short study: shorter runs of a narrower net, compared on more held-out images.
EPOCHS, COMPARED_ON = 20, 5000
COLUMNS = ("accuracy", "val_accuracy")


def _changed(**changes: Frozen | Mapping[str, object] | float) -> Config:
    """Returns the configuration of the short study with other values, those of a section as a mapping."""
    recipe = recipes.get("cifar10_modern").config
    config = recipe.model_copy(update={"model": recipe.model.model_copy(update={"width": WIDTH})})
    changed = {
        name: getattr(config, name).model_copy(update=dict(value)) if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
    return config.model_copy(update={"epochs": EPOCHS, "validation": COMPARED_ON, **changed})


PIECES = {
    "whole": ("nothing", _changed()),
    "no-normalization": (
        "no batch normalization, a tenth of the learning rate",
        _changed(model={"batch_normalization": False}, optimizer={"learning_rate": 0.04}),
    ),
    "no-shifts": ("no crops and no mirroring", _changed(augment={"pad": 0, "mirror": False})),
    "no-cutout": ("no cutout", _changed(augment={"cutout": 0})),
    "no-smoothing": ("no label smoothing", _changed(label_smoothing=0.0)),
    "no-decay": ("no weight decay", _changed(optimizer={"weight_decay": 0.0})),
    "constant-rate": (
        "constant learning rate, a quarter of the maximum",
        _changed(optimizer={"learning_rate": 0.1}, schedule=ConstantSchedule()),
    ),
    "adamw": ("AdamW in place of SGD", _changed(optimizer=AdamW(learning_rate=0.004, weight_decay=0.05))),
    "lion": ("Lion in place of SGD", _changed(optimizer=Lion(learning_rate=0.0005, weight_decay=0.4))),
    "muon": ("Muon in place of SGD", _changed(optimizer=Muon(learning_rate=0.005, weight_decay=0.1))),
    "whitened": ("whitened first convolution", _changed(model={"whitened": True})),
    "progressive": ("images of 24 x 24 pixels in the first half of the epochs", _changed(small_side=24)),
}
"""Change to the recipe, in words, and the resulting configuration, by arm."""


def make_tables(results: Results) -> list[Table]:
    """Tabulates the accuracy of each net, next to the paper's."""
    rows = tuple(
        (
            net.data,
            results.parameters(arm),
            results.accuracy(arm),
            net.paper,
            tables.spread(net.published.best, net.published.mean, net.published.std, None),
        )
        for arm, net in NETS.items()
    )
    ours = tables.score_format([(row[2],) for row in rows])
    return [
        Table(
            "Accuracy on test images, in percent",
            ("data", "parameters", "accuracy", "the paper's net", "accuracy, paper"),
            rows,
            f"ours: {ours}. The paper's: {tables.spread_over(paper_tables.SEEDS)}",
        )
    ]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws the accuracy of each run next to the paper's, a panel for each data set."""
    nets = {arm: net for arm, net in NETS.items() if results.of(arm)}
    with figures.figure("accuracies", (9.4, 0.9 + 1.1 * len(nets)), "Accuracy on test images") as figure:
        lines = {}
        mine = "ours, each run" if results.several else "ours"
        panels = figure.subplots(len(nets), squeeze=False).ravel()
        for axes, (arm, net) in zip(panels, nets.items(), strict=True):
            if ours := [100 * share for share in results.accuracies(arm)]:
                (lines[mine],) = axes.plot(ours, [0] * len(ours), "o", color=BLUE, alpha=0.6)
            mean, std = net.published.mean, net.published.std
            if mean is not None and std is not None:
                lines["the paper's mean and deviation"] = axes.errorbar(
                    100 * mean, 1, xerr=100 * std, color="black", capsize=4, marker="|"
                )
            axes.set_yticks((0, 1), (f"{net.data}, ours", net.paper))
            axes.set_ylim(1.6, -0.6)
        panels[-1].set_xlabel("accuracy on test images, %")
        figure.legend(list(lines.values()), list(lines), loc="outside right center", fontsize=9)


def make_piece_tables(results: Results) -> list[Table]:
    """Tabulates the accuracy after each change, on training and held-out images."""
    rows = tuple(
        (title, *(_last(results, arm, column) for column in COLUMNS), _difference(results, arm))
        for arm, (title, _) in PIECES.items()
    )
    error = 100 * math.sqrt(0.9 * 0.1 / COMPARED_ON)
    note = (
        "training: mean over the last epoch, during which weights still change, on images as each training augments "
        f"them; held out: {COMPARED_ON:,} images, after the last epoch; difference: in held-out accuracy, from the net "
        f"with nothing changed. An accuracy of 90% on {COMPARED_ON:,} images has a standard error of {error:.1f} "
        "points, and it depends on the seed as well, so that differences of less than a point say little"
    )
    title = "Accuracy with a piece left out, replaced or added, in percent"
    return [Table(title, ("changed", "training", "held out", "difference"), rows, note)]


def draw_pieces(results: Results, figures: Figures) -> None:
    """Draws the held-out accuracy of each run, a row for each change."""
    title = "Held-out accuracy with a piece left out, replaced or added"
    with figures.figure("pieces", (9.4, 0.9 + 0.4 * len(PIECES)), title) as figure:
        axes = figure.subplots()
        for row, arm in enumerate(PIECES):
            shares = [100 * share for share in _ends(results, arm, COLUMNS[1])]
            axes.plot(shares, [row] * len(shares), "o", color=BLUE, alpha=0.6)
        if whole := _ends(results, "whole", COLUMNS[1]):
            axes.axvline(100 * statistics.mean(whole), color="black", linewidth=0.8, linestyle=":", zorder=0)
        axes.set_yticks(range(len(PIECES)), [title for title, _ in PIECES.values()])
        axes.set_ylim(len(PIECES) - 0.5, -0.5)
        axes.set_xlabel("accuracy on held-out images, %; dotted: nothing changed")


def _last(results: Results, arm: str, column: str) -> str:
    return tables.measured(_ends(results, arm, column), len(results.of(arm)))


def _difference(results: Results, arm: str) -> str:
    whole, changed = (_ends(results, one, COLUMNS[1]) for one in ("whole", arm))
    if arm == "whole" or not (whole and changed):
        return tables.MISSING
    return f"{100 * (statistics.mean(changed) - statistics.mean(whole)):+.2f}"


def _ends(results: Results, arm: str, column: str) -> list[float]:
    """Returns the values after the last epoch of each run that did not diverge."""
    return [float(values[-1]) for values in results.curves(arm, column)]


def _arm(config: Config, counts: Counts, published: Published | None = None) -> Arm:
    known = (*recipes.get(config.recipe).provenance.assumed, "validation")
    known += ("model.batch_normalization", "model.width", "model.whitened", "small_side")
    tags = Provenance(assumed=tuple(name for name in known if name in flat(config)))
    left = counts.model_copy(update={"train": counts.train - config.validation})
    return Arm(config=config, published=published or Published(), provenance=tags, data=left)


COMMON: dict[str, Any] = {
    "title": "Highway nets of today at the paper's sizes",
    "source": "none; the paper's nets of Tables 1 and 3 have as many parameters",
    "asks": "how accurate are highway nets of the paper's sizes with what has been learned since?",
}
STUDY: Study[Results] = Study(
    name="modern",
    **COMMON,
    arms={
        arm: _arm(recipes.get(net.recipe).config.model_copy(update={"validation": HELD_OUT}), net.counts, net.published)
        for arm, net in NETS.items()
    },
    seeds=paper_tables.SEEDS,
    differs=(
        "The paper's nets trained on all training images, these without the held-out ones.",
        "The nets of CIFAR-10 and CIFAR-100 have eleven layers in place of 19, which are wider.",
    ),
    tables=make_tables,
    draw=draw_figures,
    short=Study(
        name="modern",
        **COMMON,
        arms={arm: _arm(config, CIFAR) for arm, (_, config) in PIECES.items()},
        seeds=1,
        differs=(
            f"Each net trains for {EPOCHS} epochs in place of 60, and no setting was tuned again after a change.",
            f"The net is narrower than that of `cifar10_modern`: its blocks have {WIDTH} channels in place of 48, and "
            "the later stages fewer in proportion, so that a run takes minutes on two cores. For a wider net, pieces "
            "that prevent overfitting may be worth more.",
            "The choice among the pieces rests on held-out images.",
        ),
        tables=make_piece_tables,
        draw=draw_pieces,
        label=f"short schedule: {EPOCHS} epochs of a narrow net on CIFAR-10, a piece left out, replaced or added",
        tested=False,
    ),
)
