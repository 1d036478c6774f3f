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

from highway_keras.analysis import averages, compiling
from highway_keras.analysis.batches import Batches, Told, even
from highway_keras.analysis.layout import Layout, known, traced
from highway_keras.analysis.scores import Scores
from highway_keras.analysis.scoring import Asked, scorer
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


def lesion_layers(model: keras.Model, batches: Batches, scores: Asked = None, told: Told | None = None) -> Lesions:
    """Closes all gates of one layer, for each layer of a model in turn.

    Args:
        model: any built Keras model with highway layers.
        batches: pairs (x, y), or (x, y, weights) with weights as `fit` takes them; one pass.
        scores: what is measured. None is cross-entropy and accuracy of a classifier whose last layer says whether it
            gives logits or probabilities. Else `classification`, `probabilities`, `regression`, a Keras loss,
            "compiled" for the model's own loss, or a function of your own
            (`highway_keras.analysis.scoring.Asked` has the details).
        told: is called with the number of examples done after each batch.

    Returns:
        As many lesions as there are layers, in the order of their calls. Scores are means over the examples, of token
        outputs over the steps that the mask of the outputs lets count; both weighted, if there are weights.

    Raises:
        ValueError: if the model has no highway layers, there is no example, labels do not fit the outputs, or it cannot
            be told whether the outputs are logits or probabilities.

    Example:
        found = lesion_layers(model, in_batches(images, labels))
        dict(zip(found.layout.layers, found.cost("loss")))

    Reference:
        arXiv 1507.06228, section 4.2 and Figure 4.
    """
    return _measured(model, batches, lambda layout: layout.spread(np.eye(len(layout.layers), dtype=bool)), scores, told)


def lesion_units(model: keras.Model, batches: Batches, scores: Asked = None, told: Told | None = None) -> Lesions:
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
    scores: Asked = None,
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
    model: keras.Model, batches: Batches, lesions_of: Callable[[Layout], np.ndarray], scores: Asked, told: Told | None
) -> Lesions:
    program, done = None, 0
    totals, divisors = dict[str, Any](), dict[str, float]()
    for x, y, count, weights in even(batches):
        if program is None:
            recorded, outputs = traced(model, x)
            layout = known(recorded, model)
            closed = lesions_of(layout)
            rows = _chunks(closed)
            suiting = scorer(model, outputs, scores)
            program = LesionModel(model, layout, suiting.scores)
        batch = {"x": x, "y": suiting.labels(y)} | ({} if weights is None else {"weights": weights})
        parts = [program.predict_on_batch({**batch, "closed": chunk}) for chunk in rows]
        for name, divisor in parts[0]["divisors"].items():
            sums = np.concatenate([part["scores"][name][:, :count] for part in parts]).sum(axis=1, dtype="float64")
            totals[name] = totals.get(name, 0.0) + sums
            divisors[name] = divisors.get(name, 0.0) + divisor[:count].sum(dtype="float64")
        done += count
        if told:
            told(done)
    if not all(divisors.values()):
        raise ValueError("There is nothing to measure: every example has the weight 0, or is masked.")
    means = {name: sums / divisors[name] for name, sums in totals.items()}
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


class LesionModel(compiling.Program):
    """The scores of each lesion on each example, `[lesions, batch]`, and what to divide their sums by, `[batch]`."""

    def __init__(self, model: keras.Model, layout: Layout, scores: Scores) -> None:
        super().__init__(model, autocast=False)
        self.layout = layout
        self.scores = scores
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """From "x", "y", "closed", bool `[lesions, gates]`, and maybe "weights" to the scores and divisors by name."""
        x, y = inputs["x"], inputs["y"]
        with recording(outputs=True) as intact:
            outputs = self.model(x, training=False)
        mask, weights = averages.mask_of(outputs), inputs.get("weights")
        scores = self.scores(y, outputs)
        names = sorted(scores)

        def one(carry: Any, row: tuple[Any]) -> tuple[Any, tuple[Any, ...]]:
            with lesioned(self._lesions(row[0], intact)):
                found = self.scores(y, self.model(x, training=False))
            return carry, tuple(averages.total(ops.cast(found[name], "float32"), mask, weights) for name in names)

        _, kept = scan(one, ops.zeros((), "float32"), (inputs["closed"],), kept=len(names))
        divisors = {name: averages.total(ops.ones_like(scores[name], "float32"), mask, weights) for name in names}
        return {"scores": dict(zip(names, kept, strict=True)), "divisors": divisors}

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
