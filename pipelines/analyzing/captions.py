"""What the figures of an analysis show, said from the numbers measured: never from what a source saw."""

import numpy as np

from highway_keras.analysis import Layout, Lesions, effective_depth, explained_by_class, open_layers
from highway_keras.analysis.statistics import LEFT, RIGHT
from pipelines.analyzing.measuring import Analysis

LOSS, ACCURACY = 0.1, 0.001
"""What a layer must cost to count: a share of the intact net's loss, and a share of the examples."""


def tolerances(analysis: Analysis) -> dict[str, float]:
    """What a lesion must cost to count, in the unit of each score."""
    of = {"loss": LOSS * analysis.lesions.intact["loss"], "accuracy": ACCURACY}
    return {score: of[score] for score in ("loss", "accuracy") if score in analysis.lesions.scores}


def counted(score: str) -> str:
    """What such a lesion does."""
    return (
        f"raise the loss by more than {LOSS:.0%}" if score == "loss" else f"cost more than {ACCURACY:.1%} of accuracy"
    )


def by_layer(layout: Layout, gates: np.ndarray) -> np.ndarray:
    """Means over the units of each layer: from `[gates]` to `[layers]`."""
    return np.array([values.mean() for values in layout.split(gates).values()])


def gates(analysis: Analysis) -> str:
    """Of the four maps."""
    found, layout = analysis.statistics, analysis.layout
    initial = layout.spread(found.initial_bias)
    lower = float(np.mean(found.bias < initial))
    means = by_layer(layout, found.mean)
    low, high = int(means.argmin()), int(means.argmax())
    trend = _correlation(np.arange(len(means)), means)
    biases, means_text = _range(found.bias, "{:.2f}"), f"{found.mean.mean():.3f}"
    parts = [
        f"The biases of the gates started at {_range(found.initial_bias, '{:.2f}')} and lie at {biases} now, "
        f"{lower:.0%} of them below their start.",
        f"T is {means_text} on average: from {means[low]:.3f} in layer {low + 1} to {means[high]:.3f} in layer "
        f"{high + 1}" + (f"; its correlation with the number of the layer is {trend:+.2f}." if len(means) > 2 else "."),
        "For a single example T and the outputs differ from unit to unit: "
        f"{np.mean(analysis.example_gates > 0.5):.0%} of its gates are above one half.",
    ]
    return " ".join(parts)


def openness(analysis: Analysis) -> str:
    """Of the shares of gates that are nearly closed or open."""
    found = analysis.statistics
    dead = int(found.dead.sum())
    never = int(np.sum(found.left > 1 - 1e-9))
    return (
        f"Over all layers T is below {LEFT:g} in {found.left.mean():.1%} of the cases and above {RIGHT:g} in "
        f"{found.right.mean():.1%}. {never:,} of {analysis.layout.gates:,} gates stay below {LEFT:g} on every example; "
        f"{dead:,} {'is' if dead == 1 else 'are'} dead: their slope rounds to 0 in the layer's number format. "
        f"The mean gates add up to {open_layers(found):.2f} of {len(analysis.layout.layers)} layers."
    )


def classes(analysis: Analysis) -> str:
    """Of the differences of classes."""
    found, layout = analysis.statistics, analysis.layout
    differences = np.nan_to_num(found.differences)
    label, gate = np.unravel_index(np.abs(differences).argmax(), differences.shape)
    layer, unit = _place(layout, int(gate))
    names = analysis.whole.labels
    squares = by_layer(layout, np.square(differences).mean(axis=0)) * np.array(layout.units)
    half = int(np.searchsorted(np.cumsum(squares), squares.sum() / 2)) + 1 if squares.sum() else 0
    largest = differences[label, gate]
    return (
        f"The gate that tells a class most is unit {unit + 1} of layer {layer + 1}: for '{names[label]}' its mean is "
        f"{abs(largest):.3f} {'above' if largest > 0 else 'below'} that of all examples. "
        f"The typical difference (root of the mean square) is {np.sqrt(np.square(differences).mean()):.3f}, and half "
        f"of the squared differences lies in the first {half} of {len(layout.layers)} layers."
    )


def lesions(analysis: Analysis) -> str:
    """Of the lesion curve."""
    found = analysis.lesions
    cost = found.cost("loss")
    worst, count = int(cost.argmax()), len(cost)
    text = f"Closing layer {worst + 1} costs most: the loss goes from {found.intact['loss']:.4g} to "
    text += f"{found.scores['loss'][worst]:.4g}"
    if "accuracy" in found.scores:
        text += f", the accuracy from {found.intact['accuracy']:.2%} to {found.scores['accuracy'][worst]:.2%}"
    for score, tolerance in tolerances(analysis).items():
        deep = effective_depth(found, tolerance, score)
        text += f"{'. ' if score == 'loss' else '; '}{deep} of {count} layers {counted(score)} each"
        if score == "loss" and deep:
            text += f", the last of them layer {last_useful(found, tolerance)}"
    return f"{text}. {_better(cost, 'layer')}"


def last_useful(found: Lesions, tolerance: float) -> int:
    """The number of the last layer that costs more than a tolerance of loss; 0 if none does."""
    return int(np.max(np.flatnonzero(found.cost("loss") > tolerance), initial=-1)) + 1


def units(analysis: Analysis, found: Lesions) -> str:
    """Of the lesions of single units."""
    cost = found.cost("loss")
    layer, unit = _place(analysis.layout, int(cost.argmax()))
    threshold = tolerances(analysis)["loss"]
    return (
        f"The unit that costs most is {unit + 1} of layer {layer + 1}: {cost.max():+.4g} of loss. "
        f"{int(np.sum(cost > threshold)):,} of {len(cost):,} units {counted('loss')} each. "
        f"{_better(cost, 'unit')}"
    )


def routes(analysis: Analysis) -> str:
    """Of the bands of routes."""
    spread = analysis.routes.std(axis=0)
    widest = int(spread.argmax())
    text = (
        f"From example to example the mean gate differs most in layer {widest + 1}, with a standard deviation of "
        f"{spread[widest]:.3f} around {analysis.routes[:, widest].mean():.3f}; over all layers it is "
        f"{spread.mean():.3f} on average."
    )
    if analysis.classes is not None:
        text += f" The class explains {explained_by_class(analysis.routes, analysis.classes):.0%} of these differences."
    return text


def _better(cost: np.ndarray, what: str) -> str:
    count = int(np.sum(cost < 0))
    if not count:
        return f"No {what} is harmful: the loss is at its lowest with all of them."
    return f"The loss is lower without {count:,} of them, each closed alone, by {-cost.min():.3g} at most."


def _place(layout: Layout, gate: int) -> tuple[int, int]:
    """Layer and unit of a gate, from 0."""
    starts = np.cumsum((0, *layout.units))
    layer = int(np.searchsorted(starts, gate, side="right")) - 1
    return layer, gate - int(starts[layer])


def _range(values: np.ndarray, form: str) -> str:
    low, high = form.format(values.min()), form.format(values.max())
    return low if low == high else f"{low} to {high} (mean {form.format(values.mean())})"


def _correlation(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.corrcoef(one, other)[0, 1]) if np.std(one) and np.std(other) else 0.0
