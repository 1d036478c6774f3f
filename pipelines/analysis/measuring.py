"""What is measured of one net, and all of it."""

from dataclasses import dataclass

import numpy as np

from highway_keras import analysis
from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.batches import Progress, padded
from pipelines.analysis.examples import OpenedNet, Part
from pipelines.analysis.progress import Shown


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


def measure(net: OpenedNet, whole: Part, routed: Part, shown: Shown, *, units: bool) -> Analysis:
    """Runs all analyses.

    Args:
        net: what is read.
        whole: the examples for statistics and lesions.
        routed: the examples for routes.
        shown: where progress goes.
        units: whether to close each unit alone, too.

    Returns:
        What was measured.
    """
    with shown.step("gates", whole.count) as told:
        found = statistics(net, whole, told)
    with shown.step("lesions", whole.count) as told:
        by_layer = lesions(net, whole, told)
    by_unit = None
    if units:
        with shown.step("unit lesions", whole.count) as told:
            by_unit = lesions(net, whole, told, units=True)
    with shown.step("routes", routed.count) as told:
        of_examples, classes = routes(net, routed, told)
    return Analysis(net.layout, whole, routed, found, by_layer, by_unit, *example(net, whole), of_examples, classes)


def statistics(net: OpenedNet, part: Part, told: Progress | None = None) -> GateStatistics:
    """The gates over some examples, each class apart if there are classes."""
    return analysis.gate_statistics(net.model, part.batches, len(part.labels) or None, told)


def lesions(net: OpenedNet, part: Part, told: Progress | None = None, *, units: bool = False) -> Lesions:
    """The scores on some examples with each layer closed, or each unit."""
    close = analysis.lesion_units if units else analysis.lesion_layers
    return close(net.model, part.batches, analysis.classification if part.labels else analysis.regression, told)


def example(net: OpenedNet, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """T and the outputs for the first example of a part, `[gates]` each; of a channel the mean of its places."""
    first = np.asarray(next(iter(part.batches))[0])[:1]
    read = analysis.gates(net.model, first), analysis.layer_outputs(net.model, first)
    transform, outputs = (
        np.concatenate([array[0].reshape(-1, array.shape[-1]).mean(axis=0, dtype="float64") for array in each.values()])
        for each in read
    )
    return transform, outputs


def routes(net: OpenedNet, part: Part, told: Progress | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """The mean gate of each layer for each example, `[examples, layers]`, and the class of each."""
    reader = analysis.GateModel(net.model, mean=True)
    found: list[np.ndarray] = []
    classes: list[np.ndarray] = []
    for x, y, count, _ in padded(part.batches):
        found.append(np.stack(list(reader.read(x, len(x)).values()), axis=1)[:count])
        classes.append(y[:count])
        if told:
            told(sum(map(len, found)))
    return np.concatenate(found), np.concatenate(classes).argmax(axis=1) if part.labels else None
