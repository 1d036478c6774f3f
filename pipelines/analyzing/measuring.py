"""All that is measured of one net."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from highway_keras import analysis
from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.batches import even
from pipelines.analyzing.examples import Part
from pipelines.analyzing.progress import Shown

# Numbers a batch, so that what is kept of the intact net takes some 100 MB at most; and never more examples than help.
VALUES, LARGEST = 2**24, 500


@dataclass(frozen=True)
class Analysis:
    """The numbers of one net; `gates` counts the units, or channels, of all layers."""

    layout: Layout
    """Which gate belongs to which layer."""
    whole: Part
    """What statistics and lesions were measured on."""
    routed: Part
    """What the routes were measured on."""
    statistics: GateStatistics
    """Means of T, of each class too, and how often gates are nearly closed or open."""
    lesions: Lesions
    """Scores with each layer closed."""
    unit_lesions: Lesions | None
    """Scores with each unit closed; None if not asked for."""
    example_gates: np.ndarray
    """float `[gates]`: T for the first example; of a channel the mean over its places."""
    example_outputs: np.ndarray
    """float `[gates]`: the outputs for it."""
    routes: np.ndarray
    """float32 `[examples, layers]`: mean T of each layer for each example."""
    classes: np.ndarray | None
    """int `[examples]`: the class of each of those; None for regression."""


def batch_size(layout: Layout) -> int:
    """How many examples a batch should have for nets of such a layout."""
    return max(1, min(LARGEST, VALUES // layout.values))


def measure(model: keras.Model, layout: Layout, whole: Part, routed: Part, shown: Shown, *, units: bool) -> Analysis:
    """Runs all analyses.

    Args:
        model: the net.
        layout: of its layers.
        whole: the examples for statistics and lesions.
        routed: the examples for routes.
        shown: where progress goes.
        units: whether to close each unit alone, too.

    Returns:
        What was measured.
    """
    with shown.step("gates", whole.count) as told:
        statistics = analysis.gate_statistics(model, whole.batches, len(whole.labels) or None, told)
    scores = analysis.classification if whole.labels else analysis.regression
    with shown.step("lesions", whole.count) as told:
        lesions = analysis.lesion_layers(model, whole.batches, scores, told)
    unit_lesions = None
    if units:
        with shown.step("unit lesions", whole.count) as told:
            unit_lesions = analysis.lesion_units(model, whole.batches, scores, told)
    with shown.step("routes", routed.count) as told:
        routes, classes = _routes(model, routed, told)
    first = np.asarray(next(iter(whole.batches))[0])[:1]
    return Analysis(
        layout, whole, routed, statistics, lesions, unit_lesions,
        _of_one(analysis.gates(model, first)), _of_one(analysis.layer_outputs(model, first)),
        routes, classes,
    )  # fmt: skip


def _routes(model: keras.Model, part: Part, told: Any) -> tuple[np.ndarray, np.ndarray | None]:
    """One signature an example, and its class."""
    reader = analysis.GateModel(model, mean=True)
    routes: list[np.ndarray] = []
    classes: list[np.ndarray] = []
    for x, y, count in even(part.batches):
        routes.append(np.stack(list(reader.read(x, len(x)).values()), axis=1)[:count])
        classes.append(y[:count])
        told(sum(map(len, routes)))
    labels = np.concatenate(classes).argmax(axis=1) if part.labels else None
    return np.concatenate(routes), labels


def _of_one(layers: dict[str, np.ndarray]) -> np.ndarray:
    """The values of one example, those of a channel as their mean: `[gates]`."""
    return np.concatenate(
        [array[0].reshape(-1, array.shape[-1]).mean(axis=0, dtype="float64") for array in layers.values()]
    )
