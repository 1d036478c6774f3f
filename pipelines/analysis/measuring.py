"""Measures a net: gate statistics, lesions, a single example and routes."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from highway_keras import analysis
from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.batches import Progress, padded
from highway_keras.analysis.scorer import ScoreSpec
from pipelines.analysis.examples import OpenedNet, Part
from pipelines.analysis.progress import AnalysisProgress


@dataclass(frozen=True)
class Analysis:
    """The measurements of a net. In shapes, `gates` is the number of units or channels in all layers."""

    layout: Layout
    """Maps gates to layers."""
    whole: Part
    """Examples for statistics and lesions."""
    routed: Part
    """Examples for routes."""
    statistics: GateStatistics
    """Means of T, also by class, and shares of nearly closed and open gates."""
    lesions: Lesions
    """Scores with each layer closed."""
    unit_lesions: Lesions | None
    """Scores with each unit closed; None if not requested."""
    example_gates: np.ndarray
    """float `[gates]`: T for the first example; for a channel, the mean over its positions."""
    example_outputs: np.ndarray
    """float `[gates]`: the outputs for the first example."""
    routes: np.ndarray
    """float32 `[examples, layers]`: mean T of each layer for each example."""
    classes: np.ndarray | None
    """int `[examples]`: the class of each example; None for regression, and if an example may have several."""


def measure(net: OpenedNet, whole: Part, routed: Part, progress: AnalysisProgress, *, units: bool) -> Analysis:
    """Runs all analyses.

    Args:
        net: net to read.
        whole: examples for statistics and lesions.
        routed: examples for routes.
        progress: shows the progress of the steps.
        units: whether to also close each unit individually.
    """
    with progress.step("gates", whole.count) as advance:
        found = statistics(net, whole, advance)
    with progress.step("lesions", whole.count) as advance:
        by_layer = lesions(net, whole, advance)
    by_unit = None
    if units:
        with progress.step("unit lesions", whole.count) as advance:
            by_unit = lesions(net, whole, advance, units=True)
    with progress.step("routes", routed.count) as advance:
        of_examples, classes = routes(net, routed, advance)
    return Analysis(net.layout, whole, routed, found, by_layer, by_unit, *example(net, whole), of_examples, classes)


def statistics(net: OpenedNet, part: Part, advance: Progress | None = None) -> GateStatistics:
    """Computes gate statistics over examples, for each class too if there are classes."""
    return analysis.gate_statistics(net.model, part.batches, len(part.labels) or None, advance)


def lesions(net: OpenedNet, part: Part, advance: Progress | None = None, *, units: bool = False) -> Lesions:
    """Measures the scores on examples with each layer, or each unit, closed in turn."""
    close = analysis.lesion_units if units else analysis.lesion_layers
    return close(net.model, part.batches, scores_of(part), advance)


def scores_of(part: Part) -> ScoreSpec:
    """Returns the scores of a net on these examples: loss, and accuracy if an example has exactly one class."""
    return _independent if part.multi_label else analysis.classification if part.labels else analysis.regression


def _independent(y: Any, outputs: Any) -> dict[str, Any]:
    """Computes the binary cross-entropy, summed over the classes.

    The share of labels that are right would hide what a layer is worth: of 100 rare labels, a net that never predicts
    one has 99% right.
    """
    return {"loss": keras.losses.binary_crossentropy(y, outputs, from_logits=True) * outputs.shape[-1]}


def example(net: OpenedNet, part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Returns T and the outputs for the first example, `[gates]` each; for a channel, the mean over its positions."""
    first = np.asarray(next(iter(part.batches))[0])[:1]
    axes = [call.axis for call in net.layout.calls for _ in call.layers]

    def by_gate(arrays: dict[str, np.ndarray]) -> np.ndarray:
        means = []
        for array, axis in zip(arrays.values(), axes, strict=True):
            places = np.moveaxis(array, axis, -1)
            means.append(places.reshape(-1, places.shape[-1]).mean(axis=0, dtype="float64"))
        return np.concatenate(means)

    return by_gate(analysis.gates(net.model, first)), by_gate(analysis.layer_outputs(net.model, first))


def routes(net: OpenedNet, part: Part, advance: Progress | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    """Returns the mean gate of each layer for each example, `[examples, layers]`, and the examples' classes."""
    reader = analysis.GateModel(net.model, mean=True)
    found: list[np.ndarray] = []
    classes: list[np.ndarray] = []
    for x, y, count, _ in padded(part.batches):
        found.append(np.stack(list(reader.read(x, len(x)).values()), axis=1)[:count])
        classes.append(y[:count])
        if advance:
            advance(sum(map(len, found)))
    return np.concatenate(found), np.concatenate(classes).argmax(axis=1) if part.labels else None
