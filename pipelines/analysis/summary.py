"""Numbers that summarize the gates and lesions of a net."""

from collections.abc import Iterator

import numpy as np

from highway_keras.analysis import GateStatistics, Layout, Lesions, effective_depth, explained_by_class, open_layers
from highway_keras.analysis.statistics import LEFT, RIGHT

LOSS, ACCURACY = 0.1, 0.001
"""Costs above which a layer counts: a share of the intact net's loss, and a share of all examples."""
CHANGE = 0.9
"""The share of the total change at which `changed` reports the layer."""


def tolerances(lesions: Lesions) -> dict[str, float]:
    """Costs above which a lesion counts, in the unit of each score."""
    of = {"loss": LOSS * lesions.intact["loss"], "accuracy": ACCURACY}
    return {score: of[score] for score in ("loss", "accuracy") if score in lesions.scores}


def counted(score: str) -> str:
    """Describes the effect of a lesion that counts, in words."""
    points = f"cost more than {100 * ACCURACY:g} percentage points of accuracy"
    return f"raise the loss by more than {LOSS:.0%}" if score == "loss" else points


def by_layer(layout: Layout, gates: np.ndarray) -> np.ndarray:
    """Averages over the units of each layer: from `[gates]` to `[layers]`."""
    return np.array([values.mean() for values in layout.split(gates).values()])


def changed(layout: Layout, outputs: np.ndarray) -> int | None:
    """Finds the layer by which a share `CHANGE` of the total change from layer to layer has happened.

    Args:
        layout: layout of the model.
        outputs: outputs of the layers for one example, `[gates]`.

    Returns:
        A layer, counted from 1; the change by the first layer itself is unknown. None if nothing changes, or if the
        layers differ in width or are convolutional, because outputs then change between layers as well.
    """
    if len(set(layout.units)) > 1 or len(layout.units) < 2 or any(call.places > 1 for call in layout.calls):
        return None
    steps = np.abs(np.diff(outputs.reshape(len(layout.units), -1), axis=0)).sum(axis=1)
    # The first step is the work of the second layer.
    return _up_to(steps, CHANGE) + 1 if steps.any() else None


def differences_up_to(found: GateStatistics, share: float) -> int:
    """Returns how many layers, from the first on, make up a share of the squared differences between classes, or 0."""
    squares = np.nan_to_num(np.square(found.differences)).sum(axis=0)
    sums = np.array([values.sum() for values in found.layout.split(squares).values()])
    return _up_to(sums, share) if sums.any() else 0


def last_useful(found: Lesions, score: str = "loss") -> int:
    """Returns the number of the last layer that costs more of a score than the tolerance; 0 if none does."""
    return int(np.max(np.flatnonzero(found.harmful(tolerances(found)[score], score)), initial=-1)) + 1


def of_gates(found: GateStatistics) -> Iterator[tuple[str, str]]:
    """Yields the rows of a table on the gates: name and value."""
    layers, total, dead = len(found.layout.layers), found.layout.gates, int(found.dead.sum())
    yield "sum of the mean gates", f"{open_layers(found):.2f} of {layers} layers"
    shares = f"below {LEFT:g} in {found.left.mean():.1%} of cases, above {RIGHT:g} in {found.right.mean():.1%}"
    yield "T", f"{found.mean.mean():.3g} on average, {shares}"
    yield f"gates below {LEFT:g} on every example", f"{int(np.sum(found.left > 1 - 1e-9)):,} of {total:,}"
    yield "dead gates: their slope rounds to 0 in the layer's number format", f"{dead:,} of {total:,}"


def of_lesions(found: Lesions, what: str = "layer") -> Iterator[tuple[str, str]]:
    """Yields the rows of a table on lesions of layers, units or channels: name and value."""
    for score, limit in tolerances(found).items():
        count = effective_depth(found, limit, score)
        last = f", the last of them layer {last_useful(found, score)}" if count and what == "layer" else ""
        yield f"{what}s that {counted(score)} when closed alone", f"{count:,} of {len(found.cost(score)):,}{last}"
    cost = found.cost("loss")
    worst = int(cost.argmax())
    place = str(worst + 1) if what == "layer" else gate_name(found.layout, worst)
    scores = ", ".join(f"{name} {found.intact[name]:.4g} to {found.scores[name][worst]:.4g}" for name in found.scores)
    yield f"the {what} that costs most", f"{place}: {scores}"
    yield f"{what}s without which the loss is lower", f"{int(np.sum(cost < 0)):,}"


def of_routes(routes: np.ndarray, classes: np.ndarray | None) -> Iterator[tuple[str, str]]:
    """Yields the rows of a table on routes, `[examples, layers]`: name and value."""
    spread = routes.std(axis=0)
    yield (
        "standard deviation of a layer's mean gate over examples",
        f"{spread.mean():.3f} on average, at most {spread.max():.3f} in layer {spread.argmax() + 1}",
    )
    if classes is not None and spread.any():
        yield "share of this variance that the class explains", f"{explained_by_class(routes, classes):.0%}"


def gate_name(layout: Layout, gate: int) -> str:
    """Describes the place of a gate in words."""
    starts = np.cumsum((0, *layout.units))
    layer = int(np.searchsorted(starts, gate, side="right")) - 1
    places = [call.places for call in layout.calls for _ in call.layers]
    return f"{'channel' if places[layer] > 1 else 'unit'} {gate - int(starts[layer]) + 1} of layer {layer + 1}"


def _up_to(parts: np.ndarray, share: float) -> int:
    """Returns how many parts, from the first on, add up to a share of the total."""
    sums = np.cumsum(parts)
    return int(np.searchsorted(sums, share * sums[-1])) + 1
