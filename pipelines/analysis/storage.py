"""Converts measurements to named arrays for files, and back."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.layout import Call

Arrays = Mapping[str, np.ndarray]

SHAPES = {
    "layers": "names of the highway layers, `[layers]`",
    "units": "units or channels of each, `[layers]`; arrays `[gates]` have them one after another",
    "places": "positions per channel: pixels of a map, `[layers]`",
    "dtypes": "number format in which each layer computes, `[layers]`",
    "initial_bias": "initial bias of each layer's transform gates, `[layers]`",
    "bias": "biases of the transform gates, `[gates]`",
    "mean": "mean of T, `[gates]`",
    "below": "share of examples and positions with T below 0.1, `[gates]`",
    "above": "share of examples and positions with T above 0.9, `[gates]`",
    "slope": "largest slope T (1 - T) on any example and position, `[gates]`",
    "dead": "whether no gradient reaches the gate, `[gates]`",
    "class_means": "mean of T over the examples of each class, `[classes, gates]`; one row without classes",
    "class_counts": "examples of each class, `[classes]`",
    "class_weights": "divisors of `class_means`, `[classes, gates]`; left out if proportional to `class_counts`",
    "example_gates": "T for the first example, for a channel the mean over its positions, `[gates]`",
    "example_outputs": "outputs of the layers for the first example, `[gates]`",
    "lesion_loss": "loss with each layer closed, `[layers]`",
    "lesion_accuracy": "accuracy with each layer closed, `[layers]`",
    "lesion_intact_loss": "loss of the intact net on the same examples, `[]`",
    "lesion_intact_accuracy": "accuracy of the intact net on the same examples, `[]`",
    "lesion_examples": "number of these examples, `[]`",
    "unit_lesion_loss": "loss with each unit or channel closed, `[gates]`",
    "unit_lesion_accuracy": "accuracy with each unit or channel closed, `[gates]`",
    "unit_lesion_intact_loss": "loss of the intact net on the same examples, `[]`",
    "unit_lesion_intact_accuracy": "accuracy of the intact net on the same examples, `[]`",
    "unit_lesion_examples": "number of these examples, `[]`",
    "routes": "mean of T of each layer for each example, `[examples, layers]`",
    "route_classes": "class of each of these examples, `[examples]`",
}


def of_statistics(found: GateStatistics) -> dict[str, np.ndarray]:
    """Converts statistics to arrays; large ones are in single precision.

    Args:
        found: the result of `gate_statistics`.

    Example:
        statistics(of_statistics(found)).mean  # as found.mean
    """
    return {
        **_of_layout(found.layout),
        "dtypes": np.array(found.dtypes),
        "initial_bias": found.initial_bias,
        "bias": found.bias,
        "mean": found.mean,
        "below": found.left,
        "above": found.right,
        "slope": found.slope,
        "dead": found.dead,
        "class_means": found.means.astype("float32"),
        "class_counts": found.counts,
        **({} if found.weights is None else {"class_weights": found.weights}),
    }


def statistics(arrays: Arrays) -> GateStatistics:
    """Restores the statistics from the arrays of `of_statistics`."""
    return GateStatistics(
        layout=_layout(arrays),
        bias=arrays["bias"],
        initial_bias=arrays["initial_bias"],
        counts=arrays["class_counts"],
        means=arrays["class_means"].astype("float64"),
        left=arrays["below"],
        right=arrays["above"],
        slope=arrays["slope"],
        dtypes=tuple(map(str, arrays["dtypes"])),
        weights=arrays.get("class_weights"),
    )


def of_lesions(found: Lesions, prefix: str = "lesion") -> dict[str, np.ndarray]:
    """Converts lesions of all layers, or of all units, to arrays.

    Args:
        found: the result of `lesion_layers` or `lesion_units`.
        prefix: prefix of the arrays' names; "unit_lesion" for lesions of units.
    """
    return {
        **_of_layout(found.layout),
        f"{prefix}_examples": np.array(found.examples),
        **{f"{prefix}_{score}": values for score, values in found.scores.items()},
        **{f"{prefix}_intact_{score}": np.array(value) for score, value in found.intact.items()},
    }


def lesions(arrays: Arrays, prefix: str = "lesion") -> Lesions:
    """Restores the lesions from the arrays of `of_lesions`."""
    layout = _layout(arrays)
    intact = {
        name.removeprefix(f"{prefix}_intact_"): float(value)
        for name, value in arrays.items()
        if name.startswith(f"{prefix}_intact_")
    }
    scores = {name: arrays[f"{prefix}_{name}"] for name in intact}
    by_layer = len(scores["loss"]) == len(layout.layers)
    closed = layout.spread(np.eye(len(layout.layers), dtype=bool)) if by_layer else np.eye(layout.gates, dtype=bool)
    return Lesions(layout, closed, int(arrays[f"{prefix}_examples"]), intact, scores)


def _of_layout(layout: Layout) -> dict[str, Any]:
    places = [call.places for call in layout.calls for _ in call.layers]
    return {"layers": np.array(layout.layers), "units": np.array(layout.units), "places": np.array(places)}


def _layout(arrays: Arrays) -> Layout:
    """Restores the layout, with the layers of a stack one by one."""
    rows = zip(arrays["layers"], arrays["units"], arrays["places"], strict=True)
    return Layout(tuple(Call(str(name), None, int(units), int(places)) for name, units, places in rows))
