"""What a trained net loses where gates are closed, measured without rebuilding it.

A closed gate has T = 0, so that its unit carries its input on, and a layer whose gates are all closed is not there. One
compiled program takes a batch of examples and any number of lesions: the intact net runs once, and each lesion starts
from what the intact net gave before the first closed gate. For the lesions of all layers one by one that saves about
half of the work.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling
from highway_keras.analysis.batches import Batches, Told, even
from highway_keras.analysis.layout import Layout, highway_layers
from highway_keras.analysis.scores import Scores, classification
from highway_keras.layers.lesion import Lesion, lesioned
from highway_keras.layers.recording import Recording, recording
from highway_keras.layers.scan import scan

AT_ONCE = 64  # Lesions in one call of the program; between calls progress is told.


@dataclass(frozen=True)
class Lesions:
    """How well a net does with and without some of its gates."""

    layout: Layout
    """Which gate belongs to which layer."""
    closed: np.ndarray
    """bool `[lesions, gates]`: what was closed."""
    examples: int
    """Examples that it was measured on."""
    intact: dict[str, float]
    """Mean scores of the intact net: "loss", and "accuracy" of a classifier."""
    scores: dict[str, np.ndarray]
    """The same of each lesion, float64 `[lesions]`."""

    def cost(self, score: str = "loss") -> np.ndarray:
        """What each lesion changes: its score minus that of the intact net, float64 `[lesions]`."""
        return self.scores[score] - self.intact[score]


def lesion_layers(
    model: keras.Model, batches: Batches, scores: Scores = classification, told: Told | None = None
) -> Lesions:
    """Closes all gates of one layer, for each layer of a model in turn.

    Args:
        model: any built Keras model with highway layers.
        batches: pairs (x, y); one pass.
        scores: what is measured: `classification`, `regression`, or a function of your own.
        told: is called with the number of examples done after each batch.

    Returns:
        As many lesions as there are layers, in the order of their calls.

    Raises:
        ValueError: if the model has no highway layers, or there is no example.

    Example:
        found = lesion_layers(model, in_batches(images, labels))
        dict(zip(found.layout.layers, found.cost("loss")))

    Reference:
        arXiv 1507.06228, section 4.3 and Figure 4.
    """
    return _measured(model, batches, lambda layout: layout.spread(np.eye(len(layout.layers), dtype=bool)), scores, told)


def lesion_units(
    model: keras.Model, batches: Batches, scores: Scores = classification, told: Told | None = None
) -> Lesions:
    """Closes one gate of a model, for each unit of each layer in turn; of a convolutional layer, for each channel.

    Args:
        model: see `lesion_layers`.
        batches: see `lesion_layers`.
        scores: see `lesion_layers`.
        told: see `lesion_layers`.

    Returns:
        As many lesions as there are gates; `layout.split(found.cost())` has those of each layer.
    """
    return _measured(model, batches, lambda layout: np.eye(layout.gates, dtype=bool), scores, told)


def lesion_sets(
    model: keras.Model,
    batches: Batches,
    closed: np.ndarray,
    scores: Scores = classification,
    told: Told | None = None,
) -> Lesions:
    """Closes all gates of several layers at once, for any number of such sets.

    Args:
        model: see `lesion_layers`.
        batches: see `lesion_layers`.
        closed: bool `[lesions, layers]`: the layers that each lesion closes, in the order of their calls.
        scores: see `lesion_layers`.
        told: see `lesion_layers`.

    Returns:
        As many lesions as there are rows.

    Raises:
        ValueError: if `closed` does not fit the model; see also `lesion_layers`.

    Example:
        lesion_sets(model, batches, [[True] * 10 + [False] * 39]).scores["accuracy"]  # without the first ten layers
    """
    rows = np.asarray(closed)

    def of(layout: Layout) -> np.ndarray:
        if rows.dtype != bool or rows.ndim != 2 or rows.shape[1] != len(layout.layers):
            raise ValueError(
                f"`closed` must be bool [lesions, {len(layout.layers)}], a column for each layer. "
                f"Received: shape {rows.shape}, dtype {rows.dtype}"
            )
        return layout.spread(rows)

    return _measured(model, batches, of, scores, told)


def _measured(
    model: keras.Model, batches: Batches, lesions_of: Callable[[Layout], np.ndarray], scores: Scores, told: Told | None
) -> Lesions:
    program, done, totals = None, 0, dict[str, Any]()
    for x, y, count in even(batches):
        if program is None:
            layout, _ = highway_layers(model, x)
            closed = lesions_of(layout)
            rows = _chunks(closed)
            program = LesionModel(model, layout, scores)
        parts = [program.predict_on_batch({"x": x, "y": y, "closed": chunk}) for chunk in rows]
        for name in parts[0]:
            sums = np.concatenate([part[name][:, :count] for part in parts]).sum(axis=1, dtype="float64")
            totals[name] = totals.get(name, 0.0) + sums
        done += count
        if told:
            told(done)
    means = {name: sums / done for name, sums in totals.items()}
    intact = {name: float(values[0]) for name, values in means.items()}
    return Lesions(layout, closed, done, intact, {name: values[1 : len(closed) + 1] for name, values in means.items()})


def _chunks(closed: np.ndarray) -> list[np.ndarray]:
    """The intact net and the lesions, in parts of one length; what is missing of the last costs next to nothing."""
    count = len(closed) + 1
    parts = -(-count // AT_ONCE)
    length = -(-count // parts)
    rows = np.zeros((parts * length, closed.shape[1]), bool)
    rows[1:count] = closed
    return np.split(rows, parts)


class LesionModel(keras.Model):
    """The scores of each lesion on each example, `[lesions, batch]`."""

    def __init__(self, model: keras.Model, layout: Layout, scores: Scores) -> None:
        super().__init__(autocast=False)
        self.model = model
        self.layout = layout
        self.scores = scores
        self.built = True
        self.jit_compile = compiling.pays(model)

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """From "x", "y" and "closed", bool `[lesions, gates]`, to the scores by name."""
        x, y = inputs["x"], inputs["y"]
        with recording(outputs=True) as intact:
            names = sorted(self.scores(y, self.model(x, training=False)))

        def one(carry: Any, row: tuple[Any]) -> tuple[Any, tuple[Any, ...]]:
            with lesioned(self._lesions(row[0], intact)):
                found = self.scores(y, self.model(x, training=False))
            return carry, tuple(ops.cast(found[name], "float32") for name in names)

        _, kept = scan(one, ops.zeros((), "float32"), (inputs["closed"],), kept=len(names))
        return dict(zip(names, kept, strict=True))

    def _lesions(self, closed: Any, intact: Recording) -> dict[str, Lesion]:
        first = self._first(closed)
        found = {}
        for call, gates, before in self.layout.parts():
            of_call = closed[gates] if call.depth is None else ops.reshape(closed[gates], (call.depth, call.units))
            spared = ops.clip(first - before, 0, call.depth or 1)
            found[call.name] = Lesion(of_call, (intact.outputs or {})[call.name], spared)
        return found

    def _first(self, closed: Any) -> Any:
        """The number of the first layer with a closed gate; that of all layers if there is none."""
        layers = len(self.layout.layers)
        number = self.layout.spread(np.arange(layers, dtype="int32"))
        return ops.min(ops.where(closed, number, np.int32(layers)))
