"""The nets that the studies `gates`, `routing` and `lesions` look into: paper, section 4, and a convolutional one.

Command     highway reproduce gates, routing or lesions; nets that one of them has trained, the others take over
Nets        of section 4: 50 layers of 50 tanh units on MNIST (gate bias -2) and CIFAR-100 (-4); beside them the
            convolutional net of width 16 of Table 1
Data        the statistics and lesions are those of the training images, as in the paper; accuracies of the test images
Sources     depth, width, activation and gate biases are printed; learning rate, its decay, batch and epochs are not:
            pipelines/recipes/dense.py tells what was assumed, and mnist_conv.py where the other net's numbers are from
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines import recipes
from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework import tables
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.framework.study import Arm, Counts, Published
from pipelines.studies.framework.tables import MISSING, Table

if TYPE_CHECKING:
    from pipelines.analysis.examples import OpenedNet, Part

TITLES = {"mnist": "MNIST, 50 layers", "cifar100": "CIFAR-100, 50 layers", "mnist-conv": "MNIST, convolutional"}
_RECIPES = {"mnist": "mnist_dense_50", "cifar100": "cifar100_dense_50", "mnist-conv": "mnist_conv_16"}
_IMAGES = {"mnist": 60_000, "cifar100": 50_000}
SEEDS = 3
DIFFERS = (
    "The paper analyses the best of many nets that it searched for; what learning rate, decay, batch and epochs it "
    "found is not published. Ours are assumed, and each net is trained from three seeds.",
    "The paper does not say which example its single sample is. Ours is the first training image.",
    "The paper analyses dense nets alone. Of a convolutional layer a gate stands for a channel: its mean over places.",
)


def _arm(recipe: str) -> Arm:
    known = recipes.get(recipe)
    source = Published(best=0.9943, mean=0.994, std=0.0003) if recipe == "mnist_conv_16" else Published()
    counts = Counts(train=_IMAGES[known.config.data], test=10_000)
    return Arm(config=known.config, published=source, provenance=known.provenance, data=counts)


ARMS: dict[str, Arm] = {name: _arm(recipe) for name, recipe in _RECIPES.items()}


def training(run: Run, data_dir: Path | None, limit: int | None = None) -> "tuple[OpenedNet, Part]":
    """The net of a run, and its training images.

    Args:
        run: at its end.
        data_dir: where prepared data lies; None for the default of TFDS.
        limit: at most as many images, evenly spaced; None takes all.
    """
    frameworks.load()
    from pipelines.analysis import examples

    net = examples.opened(run, data_dir=data_dir)
    return net, examples.part(net, "train", limit)


def measured(results: Results) -> Iterator[tuple[str, list[Result]]]:
    """The arms, and the runs of each that did not diverge, by seed; an arm of which none is left is passed over."""
    for arm in ARMS:
        whole = [result for result in results.of(arm) if result.evaluation]
        if whole:
            yield arm, whole


def accuracies(results: Results) -> Table:
    """The nets, and how well they do."""
    rows = []
    for arm, title in TITLES.items():
        known, runs = ARMS[arm].published, results.of(arm)
        ours = tables.measured(results.accuracies(arm), len(runs))
        rows.append(
            (
                title,
                _RECIPES[arm],
                results.parameters(arm),
                ours,
                tables.spread(known.best, known.mean, known.std, None),
            )
        )
    head = ("net", "recipe", "parameters", "test accuracy, percent", "source")
    note = "best (mean +- standard deviation over seeds, n = runs); the paper gives none of the dense nets it analyses"
    return Table("The nets", head, tuple(rows), note)


def compared(
    title: str,
    results: Results,
    rows: Mapping[str, tuple[str, str]],
    numbers: Callable[[Result], Sequence[float | None]],
    note: str,
) -> Table:
    """Numbers of each net beside what the paper saw.

    Args:
        title: of the table.
        results: of all runs.
        rows: for each number how it is written, and what the paper says of it.
        numbers: from a run to its numbers, one a row; None where a net has no such number.
        note: below the table.
    """
    found = {arm: list(zip(*map(numbers, runs), strict=True)) for arm, runs in measured(results)}
    written = []
    for row, (name, (form, saw)) in enumerate(rows.items()):
        cells = (over_seeds(found[arm][row], form) if arm in found else MISSING for arm in ARMS)
        written.append((name, *cells, saw))
    note = f"mean over seeds (lowest to highest); {note}"
    return Table(title, ("", *TITLES.values(), "the paper saw"), tuple(written), note)


def over_seeds(values: Sequence[float | None], form: str) -> str:
    """Mean, and from lowest to highest where they differ.

    Example:
        over_seeds([1.0, 2.0, 3.0], "{:.0f}")  # "2 (1 to 3)"
    """
    known = [value for value in values if value is not None]
    if not known:
        return MISSING
    mean, low, high = (form.format(float(value)) for value in (np.mean(known), min(known), max(known)))
    return mean if low == high else f"{mean} ({low} to {high})"
