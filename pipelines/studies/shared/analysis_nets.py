"""The nets of the studies `gates`, `routing` and `lesions`: the paper's nets of section 4, and a convolutional net.

Command     highway reproduce gates, routing or lesions; each reuses nets that another study has trained
Nets        section 4: 50 layers of 50 tanh units on MNIST (gate bias -2) and CIFAR-100 (-4); and the convolutional net
            of width 16 of Table 1
Data        statistics and lesions on training images, as in the paper; accuracies on test images
Sources     the paper gives depth, width, activation and gate biases, but not learning rate, decay, batch size or
            epochs: see pipelines/recipes/dense.py for what we assume, and mnist_conv.py for the convolutional net
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import recipes
from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework import paper_tables, tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.framework.study import CIFAR, MNIST, Arm, Published, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.shared.published import MNIST_CONV_16

if TYPE_CHECKING:
    from pipelines.analysis.examples import OpenedNet, Part

TITLES = {"mnist": "MNIST, 50 layers", "cifar100": "CIFAR-100, 50 layers", "mnist-conv": "MNIST, convolutional"}
_RECIPES = {"mnist": "mnist_dense_50", "cifar100": "cifar100_dense_50", "mnist-conv": "mnist_conv_16"}
_COUNTS = {"mnist": MNIST, "cifar100": CIFAR}
SEEDS = 3
DIFFERS = (
    "The paper analyses the best nets of a search whose learning rate, decay, batch size and epochs are not published. "
    "Ours are assumed.",
    "The paper does not say which example it shows. Ours is the first training image.",
    "The paper analyses dense nets only. In a convolutional layer, a gate here is the mean of a channel over the "
    "places of the image.",
)


def _arm(recipe: str) -> Arm:
    known = recipes.get(recipe)
    source = MNIST_CONV_16 if recipe == "mnist_conv_16" else Published()
    counts = _COUNTS[known.config.data]
    return Arm(config=known.config, published=source, provenance=known.provenance, data=counts)


ARMS: dict[str, Arm] = {name: _arm(recipe) for name, recipe in _RECIPES.items()}


@dataclass(frozen=True)
class Numbers:
    """Numbers of each net, next to the paper's observations.

    Args:
        title: title of the table.
        rows: format of each number and the paper's observation, by name of the number.
        of: returns the numbers of a run, one per row; None where a net has no such number.
        note: note below the table, appended to how its cells summarize the seeds.
    """

    title: str
    rows: Mapping[str, tuple[str, str]]
    of: Callable[[Result], Sequence[float | None]]
    note: str


def training(run: Run, data_dir: Path | None, limit: int | None = None) -> "tuple[OpenedNet, Part]":
    """Opens the net of a run and its training images.

    Args:
        run: a finished run.
        data_dir: folder of prepared data; None for the TFDS default.
        limit: maximum number of images, evenly spaced; None for all.
    """
    frameworks.load()
    from pipelines.analysis import examples

    net = examples.opened(run, data_dir=data_dir)
    return net, examples.part(net, "train", limit)


def measured(results: Results) -> Iterator[tuple[str, list[Result]]]:
    """Yields each arm with its runs that did not diverge, by seed; skips arms without any."""
    for arm in ARMS:
        whole = [result for result in results.of(arm) if result.evaluation]
        if whole:
            yield arm, whole


def accuracies(results: Results) -> Table:
    """Tabulates the nets and their accuracy."""
    rows = []
    ours = [(results.accuracy(arm),) for arm in TITLES]
    for arm, title in TITLES.items():
        known = ARMS[arm].published
        source = tables.spread(known.best, known.mean, known.std, None)
        rows.append((title, _RECIPES[arm], results.parameters(arm), results.accuracy(arm), source))
    head = ("net", "recipe", "parameters", "test accuracy, percent", "source")
    note = (
        f"ours: {tables.score_format(ours)}; source: {tables.spread_over(paper_tables.SEEDS)}; the paper gives no "
        "accuracy of the dense nets that it analyses"
    )
    return Table("The nets", head, tuple(rows), note)


def study(
    name: str,
    *,
    title: str,
    place: str,
    asks: str,
    numbers: Numbers,
    measure: Callable[[Run, Path | None], dict[str, np.ndarray]],
    draw: Callable[[Results, Figures], None],
    differs: Sequence[str] = (),
) -> Study:
    """Builds a study of these nets, with their accuracies and its own numbers as tables.

    Args:
        name: name on the command line.
        title: title of its page.
        place: section and figure of the paper.
        asks: its question.
        numbers: numbers to compare with the paper.
        measure: measures a run.
        draw: draws the figures.
        differs: further differences from the source.
    """
    return Study(
        name=name,
        title=title,
        source=f"Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, {place}",
        asks=asks,
        arms=ARMS,
        seeds=SEEDS,
        differs=(*DIFFERS, *differs),
        tables=lambda results: [accuracies(results), comparison_table(results, numbers)],
        draw=draw,
        measure=measure,
    )


def comparison_table(results: Results, numbers: Numbers) -> Table:
    """Tabulates numbers of each net next to the paper's observations."""
    found = {arm: list(zip(*map(numbers.of, runs), strict=True)) for arm, runs in measured(results)}
    lines = []
    for row, (name, (form, paper)) in enumerate(numbers.rows.items()):
        cells = (over_seeds(found[arm][row], form) if arm in found else MISSING for arm in ARMS)
        lines.append((name, *cells, paper))
    seeds = "mean over seeds (lowest to highest)" if results.several else "one seed"
    note = f"{seeds}{numbers.note}"
    return Table(numbers.title, ("", *TITLES.values(), "in the paper"), tuple(lines), note)


def over_seeds(values: Sequence[float | None], form: str) -> str:
    """Formats the mean, and the lowest and highest value where they differ.

    Example:
        over_seeds([1.0, 2.0, 3.0], "{:.0f}")  # "2 (1 to 3)"
    """
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    mean, low, high = (form.format(float(value)) for value in (np.mean(known), min(known), max(known)))
    return mean if low == high else f"{mean} ({low} to {high})"
