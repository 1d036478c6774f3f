"""Backward elimination of highway layers: they are closed one after the other, the least costly first."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import keras
import numpy as np

from highway_keras.analysis.batches import Batches, Progress
from highway_keras.analysis.layout import Layout
from highway_keras.analysis.lesions import ROUNDING, Lesioner
from highway_keras.analysis.scorer import ScoreSpec

ROUNDS = 50
"""Most rounds in which all layers are closed, in deeper nets several in each."""


@dataclass(frozen=True)
class Elimination:
    """Scores of a net while more and more of its highway layers are closed."""

    layout: Layout
    """The gates of each layer."""
    order: tuple[int, ...]
    """Indices of the closed layers, in the order in which they were closed."""
    closed: np.ndarray
    """int `[states]`: number of closed layers; 0 first."""
    examples: int
    """Number of examples scored."""
    scores: dict[str, np.ndarray]
    """Mean scores with that many layers closed, float64 `[states]`: "loss", and "accuracy" for a classifier."""

    def spared(self, tolerance: float, score: str = "loss") -> int:
        """Counts the layers that can be closed together at most.

        Args:
            tolerance: largest change of the score for the worse to tolerate, in nats of cross-entropy or as a fraction
                of the examples.
            score: "loss" (lower is better), or any other score (higher is better).

        Returns:
            The number of layers, the first ones of `order`; 0 if the score of the whole net is NaN.

        Example:
            lesion_greedily(model, batches).spared(0.001, "accuracy")
        """
        values = self.scores[score] if score == "loss" else -self.scores[score]
        return int(self.closed[np.flatnonzero(values - values[0] <= tolerance + ROUNDING)].max(initial=0))

    def names(self, count: int) -> tuple[str, ...]:
        """Returns the names of the first layers that were closed, in call order.

        Args:
            count: number of layers.

        Example:
            highway_keras.surgery.pruned(model, found.names(found.spared(0.001, "accuracy")))
        """
        return tuple(self.layout.layers[number] for number in sorted(self.order[:count]))


def lesion_greedily(
    model: keras.Model,
    batches: Batches,
    scores: ScoreSpec = None,
    progress: Progress | None = None,
    until: Callable[[Mapping[str, float], Mapping[str, float]], bool] | None = None,
) -> Elimination:
    """Closes highway layers one after the other: each time the one whose closing raises the loss least.

    This is backward elimination. The cost of a layer is measured anew in each round, next to the layers closed before,
    because layers can replace each other: each of two may be dispensable, but not both. Nets of more than 50 layers are
    closed in at most 50 rounds, several layers in each.

    Args:
        model: see `lesion_layers`.
        batches: see `lesion_layers`; read once per round.
        scores: see `lesion_layers`.
        progress: called after each round with the number of closed layers.
        until: ends the elimination early, given the scores of the intact net and those with the layers closed so far;
            None closes all layers.

    Returns:
        The order, and the scores after each round.

    Raises:
        ValueError: see `lesion_layers`.

    Example:
        found = lesion_greedily(model, in_batches(images, labels))
        small = highway_keras.surgery.pruned(model, found.names(found.spared(0.001, "accuracy")))
    """
    # A generator would be empty in the second round.
    batches = list(batches) if isinstance(batches, Iterator) else batches
    lesioner = Lesioner(model, scores)
    order, counts, states = list[int](), list[int](), dict[str, list[float]]()

    def lesions(layout: Layout) -> np.ndarray:
        layers = len(layout.layers)
        closed = np.isin(np.arange(layers), order)
        # The layers closed so far, and each of the others next to them.
        return layout.spread(np.stack([closed, *(closed | row for row in np.eye(layers, dtype=bool)[~closed])]))

    while True:
        found = lesioner.measure(batches, lesions)
        layers = len(found.layout.layers)
        now = {name: float(values[0]) for name, values in found.scores.items()}
        for name, value in now.items():
            states.setdefault(name, []).append(value)
        counts.append(len(order))
        if progress:
            progress(len(order))
        if len(order) == layers or (order and until and until(found.intact, now)):
            arrays = {name: np.array(values) for name, values in states.items()}
            return Elimination(found.layout, tuple(order), np.array(counts), found.examples, arrays)
        others = np.setdiff1d(np.arange(layers), order)
        cheapest = np.argsort(found.scores["loss"][1:], kind="stable")[: -(-layers // ROUNDS)]
        order += others[cheapest].tolist()
