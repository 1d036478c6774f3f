"""Lesion studies: how a trained net performs with some of its gates closed, without rebuilding it.

A closed gate has T = 0, so its unit carries its input; a layer with all gates closed is the identity. One compiled
program takes a batch of examples and any number of lesions. It runs the intact net once and starts each lesion from the
intact output before the first closed gate, which halves the work of closing each layer in turn.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling
from highway_keras.analysis.batches import Batches, Progress, padded
from highway_keras.analysis.layout import Layout, layout_of, trace
from highway_keras.analysis.scorer import Scorer, ScoreSpec, scorer
from highway_keras.analysis.scores import example_sums, output_mask
from highway_keras.layers.lesion import Lesion, lesioned
from highway_keras.layers.recording import Recording, recording
from highway_keras.layers.scan import scan, stacked

CHUNK = 64  # Maximum number of lesions per call of the program.
ROUNDING = 1e-9  # 0.976 - 0.975 is more than 0.001 in binary.


@dataclass(frozen=True)
class Lesions:
    """Scores of a net, intact and with some of its gates closed."""

    layout: Layout
    """The gates of each layer."""
    closed: np.ndarray
    """bool `[lesions, gates]`: the closed gates of each lesion."""
    examples: int
    """Number of examples scored."""
    intact: dict[str, float]
    """Mean scores of the intact net: "loss", and "accuracy" for a classifier."""
    scores: dict[str, np.ndarray]
    """Mean scores of each lesion, float64 `[lesions]`."""

    def cost(self, score: str = "loss") -> np.ndarray:
        """Computes the effect of each lesion on a score.

        Args:
            score: name of the score, a key of `scores`.

        Returns:
            The score of each lesion minus that of the intact net, float64 `[lesions]`.
        """
        return self.scores[score] - self.intact[score]

    def harmful(self, tolerance: float, score: str = "loss") -> np.ndarray:
        """Tests which lesions make a score worse by more than a tolerance.

        Args:
            tolerance: largest change to tolerate, in nats of cross-entropy or as a fraction of the examples.
            score: "loss" (lower is better), or any other score (higher is better).

        Returns:
            bool `[lesions]`.
        """
        worse = self.cost(score) if score == "loss" else -self.cost(score)
        return worse > tolerance + ROUNDING


def lesion_layers(
    model: keras.Model, batches: Batches, scores: ScoreSpec = None, progress: Progress | None = None
) -> Lesions:
    """Closes all gates of one layer, for each layer of a model in turn.

    Args:
        model: any built Keras model with highway layers.
        batches: pairs (x, y), or (x, y, weights) with weights as for `fit`; read once.
        scores: scores to compute. None computes cross-entropy and accuracy of a classifier, from logits or
            probabilities according to its last layer; several sigmoids are independent binary classifiers, with y of
            the shape of the outputs. Alternatives: `classification` for logits; `probabilities`; `regression` for the
            squared error; a Keras loss, with y as it expects it (cross-entropies add the accuracy; what belongs to its
            `ignore_class` does not count); "compiled" for the model's own loss; or a function of y and the outputs that
            returns scores by name, or the loss of each example.
        progress: called after each batch with the number of examples processed so far.

    Returns:
        One lesion per layer, in call order. Scores are means over the examples (for token outputs, over their unmasked
        steps), weighted if there are weights.

    Raises:
        ValueError: if the model has no highway layers, there are no examples, labels do not fit the outputs, or it is
            ambiguous whether the outputs are logits or probabilities.

    Example:
        found = lesion_layers(model, in_batches(images, labels))
        dict(zip(found.layout.layers, found.cost("loss")))

    Reference:
        arXiv 1507.06228, section 4.2 and Figure 4.
    """
    return _measure(
        model, batches, lambda layout: layout.spread(np.eye(len(layout.layers), dtype=bool)), scores, progress
    )


def lesion_units(
    model: keras.Model, batches: Batches, scores: ScoreSpec = None, progress: Progress | None = None
) -> Lesions:
    """Closes one gate of a model, for each unit (in convolutional layers each channel) in turn.

    Args:
        model: see `lesion_layers`.
        batches: see `lesion_layers`.
        scores: see `lesion_layers`.
        progress: see `lesion_layers`.

    Returns:
        One lesion per gate; `layout.split(lesions.cost())` groups their costs by layer.

    Raises:
        ValueError: see `lesion_layers`.

    Example:
        found = lesion_units(model, in_batches(images, labels))
        found.layout.split(found.cost())["highway_03"]  # cost of each unit of layer 3, [units]

    Reference:
        arXiv 1507.06228, section 4.2, with units in place of layers.
    """
    return _measure(model, batches, lambda layout: np.eye(layout.gates, dtype=bool), scores, progress)


def lesion_sets(
    model: keras.Model,
    batches: Batches,
    closed: np.ndarray,
    scores: ScoreSpec = None,
    progress: Progress | None = None,
) -> Lesions:
    """Closes all gates of several layers at once, for any number of sets of layers.

    Args:
        model: see `lesion_layers`.
        batches: see `lesion_layers`.
        closed: bool `[lesions, layers]`: the layers that each lesion closes, in call order.
        scores: see `lesion_layers`.
        progress: see `lesion_layers`.

    Returns:
        One lesion per row.

    Raises:
        ValueError: if `closed` does not fit the model; see also `lesion_layers`.

    Example:
        lesion_sets(model, batches, [[True] * 10 + [False] * 39]).scores["accuracy"]  # without the first ten layers
    """
    rows = np.asarray(closed)

    def spread(layout: Layout) -> np.ndarray:
        if rows.dtype != bool or rows.ndim != 2 or rows.shape[1] != len(layout.layers):
            raise ValueError(
                f"`closed` must be bool [lesions, {len(layout.layers)}], one column per layer. "
                f"Received: shape {rows.shape}, dtype {rows.dtype}"
            )
        return layout.spread(rows)

    return _measure(model, batches, spread, scores, progress)


def effective_depth(lesions: Lesions, tolerance: float, score: str = "loss") -> int:
    """Counts the layers that make a score worse by more than a tolerance when closed alone.

    The definition is ours. Single-layer lesions as a measure of a layer's use come from the paper (section 4.2); Veit,
    Wilber and Belongie 2016 (arXiv 1605.06431) applied them to residual nets. Layers that can replace each other are
    not counted, because the net can spare any one of them.

    Args:
        lesions: the result of `lesion_layers`.
        tolerance: largest change to tolerate, in nats of cross-entropy or as a fraction of the examples.
        score: "loss" (lower is better), or any other score (higher is better).

    Returns:
        The number of layers.

    Example:
        effective_depth(lesion_layers(model, batches), tolerance=0.001, score="accuracy")  # layers worth over 0.1%
    """
    return int(np.sum(lesions.harmful(tolerance, score)))


def _measure(
    model: keras.Model,
    batches: Batches,
    lesions_of: Callable[[Layout], np.ndarray],
    scores: ScoreSpec,
    progress: Progress | None,
) -> Lesions:
    return Lesioner(model, scores).measure(batches, lesions_of, progress)


class Lesioner:
    """Measures lesions of a model, any number of times, with one compiled program for the most lesions so far.

    Args:
        model: see `lesion_layers`.
        scores: see `lesion_layers`.
    """

    def __init__(self, model: keras.Model, scores: ScoreSpec) -> None:
        self._model, self._scores = model, scores
        self._program: LesionModel | None = None
        self._labels: Callable[[Any], Any] = lambda y: y
        self._most = 0

    def measure(
        self, batches: Batches, lesions_of: Callable[[Layout], np.ndarray], progress: Progress | None = None
    ) -> Lesions:
        """Measures the lesions, bool `[lesions, gates]`, that a function chooses for the layout of the model."""
        done, rows = 0, list[np.ndarray]()
        totals, divisors = dict[str, Any](), dict[str, float]()
        for x, y, count, weights in padded(batches):
            program = self._program or self._open(x)
            if not rows:
                closed = lesions_of(program.layout)
                self._most = max(self._most, len(closed) + 1)
                rows = _chunks(closed, self._most)
            batch = {"x": x, "y": self._labels(y)} | ({} if weights is None else {"weights": weights})
            parts = [program.predict_on_batch({**batch, "closed": chunk}) for chunk in rows]
            for name, divisor in parts[0]["divisors"].items():
                sums = np.concatenate([part["scores"][name][:, :count] for part in parts]).sum(axis=1, dtype="float64")
                totals[name] = totals.get(name, 0.0) + sums
                divisors[name] = divisors.get(name, 0.0) + divisor[:count].sum(dtype="float64")
            done += count
            if progress:
                progress(done)
        if not all(divisors.values()):
            raise ValueError("There is nothing to measure: every example has weight 0, is masked or ignored.")
        means = {name: sums / divisors[name] for name, sums in totals.items()}
        intact = {name: float(values[0]) for name, values in means.items()}
        found = {name: values[1 : len(closed) + 1] for name, values in means.items()}
        return Lesions(program.layout, closed, done, intact, found)

    def _open(self, x: Any) -> "LesionModel":
        recorded, outputs = trace(self._model, x)
        chosen = scorer(self._model, outputs, self._scores)
        self._labels = chosen.labels
        self._program = LesionModel(self._model, layout_of(recorded, self._model), chosen)
        return self._program


def _chunks(closed: np.ndarray, size: int) -> list[np.ndarray]:
    """Splits the intact net and the lesions, padded to `size`, into equal chunks; padding costs next to nothing."""
    parts = -(-size // CHUNK)
    length = -(-size // parts)
    rows = np.zeros((parts * length, closed.shape[1]), bool)
    rows[1 : len(closed) + 1] = closed
    return np.split(rows, parts)


class LesionModel(compiling.Program):
    """A model that scores each lesion on each example, `[lesions, batch]`, and returns the divisors, `[batch]`."""

    def __init__(self, model: keras.Model, layout: Layout, chosen: Scorer) -> None:
        super().__init__(model)
        self.layout = layout
        self.scores, self.counted = chosen.scores, chosen.counted
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Maps "x", "y", "closed" (bool `[lesions, gates]`) and optional "weights" to scores and divisors by name."""
        x, y = inputs["x"], inputs["y"]
        with recording(outputs=True) as intact:
            outputs = self.model(x, training=False)
        mask, weights = output_mask(outputs), inputs.get("weights")
        scores = self.scores(y, outputs)
        names = sorted(scores)

        def lesion(carry: Any, row: tuple[Any]) -> tuple[Any, tuple[Any, ...]]:
            with lesioned(self._lesions(row[0], intact)):
                found = self.scores(y, self.model(x, training=False))
            return carry, tuple(example_sums(ops.cast(found[name], "float32"), mask, weights) for name in names)

        _, sums = scan(lesion, ops.zeros((), "float32"), (inputs["closed"],), kept=len(names))
        divisors = {name: example_sums(self.counted(y, scores[name]), mask, weights) for name in names}
        return {"scores": dict(zip(names, map(stacked, sums), strict=True)), "divisors": divisors}

    def _lesions(self, closed: Any, intact: Recording) -> dict[str, Lesion]:
        first = self._first(closed)
        lesions = {}
        for call, gates, before in self.layout.parts():
            units = closed[gates] if call.depth is None else ops.reshape(closed[gates], (call.depth, call.units))
            spared = ops.clip(first - before, 0, call.depth or 1)
            lesions[call.name] = Lesion(units, (intact.outputs or {})[call.name], spared)
        return lesions

    def _first(self, closed: Any) -> Any:
        """Returns the index of the first layer with a closed gate, or the number of layers if there is none."""
        layers = len(self.layout.layers)
        number = self.layout.spread(np.arange(layers, dtype="int32"))
        return ops.min(ops.where(closed, number, np.int32(layers)))
