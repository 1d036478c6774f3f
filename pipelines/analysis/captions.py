"""What the figures of an analysis show, said from the numbers measured: never from what a source saw."""

from collections.abc import Mapping

import numpy as np

from highway_keras.analysis import GateStatistics, Layout, Lesions, effective_depth, explained_by_class, open_layers
from highway_keras.analysis.statistics import LEFT, RIGHT
from pipelines.core.statistics import correlation

LOSS, ACCURACY = 0.1, 0.001
"""What a layer must cost to count: a share of the intact net's loss, and a share of the examples."""
CHANGE = 0.9
"""The share of a change that is said to lie up to a layer."""


def tolerances(lesions: Lesions) -> dict[str, float]:
    """What a lesion must cost to count, in the unit of each score."""
    of = {"loss": LOSS * lesions.intact["loss"], "accuracy": ACCURACY}
    return {score: of[score] for score in ("loss", "accuracy") if score in lesions.scores}


def counted(score: str) -> str:
    """What such a lesion does."""
    return (
        f"raise the loss by more than {LOSS:.0%}" if score == "loss" else f"cost more than {ACCURACY:.1%} of accuracy"
    )


def by_layer(layout: Layout, gates: np.ndarray) -> np.ndarray:
    """Means over the units of each layer: from `[gates]` to `[layers]`."""
    return np.array([values.mean() for values in layout.split(gates).values()])


def gates(found: GateStatistics, example_gates: np.ndarray, example_outputs: np.ndarray) -> str:
    """Of the four maps."""
    initial = found.layout.spread(found.initial_bias)
    lower = float(np.mean(found.bias < initial))
    means = by_layer(found.layout, found.mean)
    low, high = int(means.argmin()), int(means.argmax())
    trend = correlation(np.arange(len(means)), means)
    parts = [
        f"The biases of the gates started at {_range(initial, '{:.2f}')} and lie at {_range(found.bias, '{:.2f}')} "
        f"now, {lower:.0%} of them below their start.",
        f"T is {found.mean.mean():.3f} on average: from {means[low]:.3f} in layer {low + 1} to {means[high]:.3f} in "
        f"layer {high + 1}"
        + (f"; its correlation with the number of the layer is {trend:+.2f}." if len(means) > 2 else "."),
        "For a single example T and the outputs differ from unit to unit: "
        f"{np.mean(example_gates > 0.5):.1%} of its gates are above one half.",
    ]
    if (layer := changed(found.layout, example_outputs)) is not None:
        parts.append(f"{CHANGE:.0%} of the change of its outputs from layer to layer lies up to layer {layer}.")
    return " ".join(parts)


def changed(layout: Layout, outputs: np.ndarray) -> int | None:
    """The number of the layer up to which `CHANGE` of the change of the outputs from layer to layer lies.

    Args:
        layout: of the model.
        outputs: of the layers for one example, `[gates]`.

    Returns:
        A layer, the first of which nothing is known to have changed before; None for nets whose layers differ in width
        or have places, which change by more than their own doing, and where nothing changes.
    """
    if len(set(layout.units)) > 1 or len(layout.units) < 2 or any(call.places > 1 for call in layout.calls):
        return None
    steps = np.abs(np.diff(outputs.reshape(len(layout.units), -1), axis=0)).sum(axis=1)
    # The first step is made by the second layer.
    return _up_to(steps, CHANGE) + 1 if steps.any() else None


def openness(found: GateStatistics) -> str:
    """Of the shares of gates that are nearly closed or open."""
    dead = int(found.dead.sum())
    never = int(np.sum(found.left > 1 - 1e-9))
    return (
        f"Over all layers T is below {LEFT:g} in {found.left.mean():.1%} of the cases and above {RIGHT:g} in "
        f"{found.right.mean():.1%}. {never:,} of {found.layout.gates:,} gates stay below {LEFT:g} on every example; "
        f"{dead:,} {'is' if dead == 1 else 'are'} dead: their slope rounds to 0 in the layer's number format. "
        f"The mean gates add up to {open_layers(found):.2f} of {len(found.layout.layers)} layers."
    )


def classes(found: GateStatistics, labels: tuple[str, ...]) -> str:
    """Of the differences of all classes."""
    differences = np.nan_to_num(found.differences)
    label, gate = np.unravel_index(np.abs(differences).argmax(), differences.shape)
    largest = differences[label, gate]
    return (
        f"The gate that tells a class most is {_named(found.layout, int(gate))}: for '{labels[label]}' its mean is "
        f"{abs(largest):.3f} {'above' if largest > 0 else 'below'} that of all examples. "
        f"The typical difference (root of the mean square) is {np.sqrt(np.square(differences).mean()):.3f}, and half "
        f"of the squared differences lies in the first {differences_up_to(found, 0.5)} of {len(found.layout.layers)} "
        "layers."
    )


def some_classes(found: GateStatistics, names: Mapping[int, str]) -> str:
    """Of the differences of some classes, one by one, by number and name."""
    parts = []
    for number, name in names.items():
        differences = np.nan_to_num(found.differences[number])
        gate = int(np.abs(differences).argmax())
        parts.append(
            f"'{name}': up to {differences[gate]:+.3f} ({_named(found.layout, gate)}), "
            f"typically {np.sqrt(np.square(differences).mean()):.3f}"
        )
    return f"Mean of T of a class minus that of all, {'; '.join(parts)}."


def differences_up_to(found: GateStatistics, share: float) -> int:
    """The number of the layer up to which a share of the squared differences of classes lies; 0 if there are none."""
    squares = np.nan_to_num(np.square(found.differences)).sum(axis=0)
    sums = np.array([values.sum() for values in found.layout.split(squares).values()])
    return _up_to(sums, share) if sums.any() else 0


def lesions(found: Lesions) -> str:
    """Of the lesion curve."""
    cost = found.cost("loss")
    worst, count = int(cost.argmax()), len(cost)
    text = f"Closing layer {worst + 1} costs most: the loss goes from {found.intact['loss']:.4g} to "
    text += f"{found.scores['loss'][worst]:.4g}"
    if "accuracy" in found.scores:
        text += f", the accuracy from {found.intact['accuracy']:.2%} to {found.scores['accuracy'][worst]:.2%}"
    for score, tolerance in tolerances(found).items():
        deep = effective_depth(found, tolerance, score)
        text += f"{'. ' if score == 'loss' else '; '}{deep} of {count} layers {counted(score)} each"
        text += f", the last of them layer {last_useful(found, score)}" if deep else ""
    return f"{text}. {_better(cost, 'layer')}"


def last_useful(found: Lesions, score: str = "loss") -> int:
    """The number of the last layer that costs more of a score than its tolerance; 0 if none does."""
    worse = found.cost(score) * (1 if score == "loss" else -1)
    return int(np.max(np.flatnonzero(worse > tolerances(found)[score]), initial=-1)) + 1


def units(found: Lesions) -> str:
    """Of the lesions of single units."""
    cost, what = found.cost("loss"), found.layout.unit
    return (
        f"What costs most is {_named(found.layout, int(cost.argmax()))}: {cost.max():+.4g} of loss. "
        f"{int(np.sum(cost > tolerances(found)['loss'])):,} of {len(cost):,} {what}s {counted('loss')} each. "
        f"{_better(cost, what)}"
    )


def routes(found: np.ndarray, classes: np.ndarray | None) -> str:
    """Of the bands of routes, `[examples, layers]`, and the class of each example."""
    spread = found.std(axis=0)
    widest = int(spread.argmax())
    text = (
        f"From example to example the mean gate differs most in layer {widest + 1}, with a standard deviation of "
        f"{spread[widest]:.3f} around {found[:, widest].mean():.3f}; over all layers it is "
        f"{spread.mean():.3f} on average."
    )
    if classes is not None and spread.any():
        text += f" The class explains {explained_by_class(found, classes):.0%} of these differences."
    return text


def _better(cost: np.ndarray, what: str) -> str:
    count = int(np.sum(cost < 0))
    if not count:
        return f"No {what} is harmful: the loss is at its lowest with all of them."
    return f"The loss is lower without {count:,} of them, each closed alone, by {-cost.min():.3g} at most."


def _named(layout: Layout, gate: int) -> str:
    """The place of a gate in words."""
    starts = np.cumsum((0, *layout.units))
    layer = int(np.searchsorted(starts, gate, side="right")) - 1
    places = [call.places for call in layout.calls for _ in call.layers]
    return f"{'channel' if places[layer] > 1 else 'unit'} {gate - int(starts[layer]) + 1} of layer {layer + 1}"


def _up_to(parts: np.ndarray, share: float) -> int:
    """How many of some parts, from the first on, make a share of their sum."""
    sums = np.cumsum(parts)
    return int(np.searchsorted(sums, share * sums[-1])) + 1


def _range(values: np.ndarray, form: str) -> str:
    low, high = form.format(values.min()), form.format(values.max())
    return low if low == high else f"{low} to {high} (mean {form.format(values.mean())})"
