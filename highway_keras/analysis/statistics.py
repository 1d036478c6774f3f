"""What the gates of a model do over a whole data set: means, means of each class, and gates that do not move."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, places
from highway_keras.analysis.batches import Batches, Told, count_of, even
from highway_keras.analysis.labels import class_of_each
from highway_keras.analysis.layout import Layout, Reduce, flat, highway_layers
from highway_keras.layers.gate import gate_dtype
from highway_keras.layers.recording import recording

LEFT, RIGHT = 0.1, 0.9


@dataclass(frozen=True)
class GateStatistics:
    """The gates of a model over a data set. `gates` counts the units of all layers; `layout.split` gives each layer's.

    The gate of a convolutional layer stands for all places of a channel: its mean is over examples and places. Where a
    layer is called with a mask, the steps that it leaves out count nowhere here, and those that it lets count weigh
    alike.
    """

    layout: Layout
    """Which gate belongs to which layer."""
    bias: np.ndarray
    """float64 `[gates]`: the biases of the transform gates (paper, Figure 2, first column)."""
    initial_bias: np.ndarray
    """float64 `[layers]`: where they started."""
    counts: np.ndarray
    """int `[classes]`: the examples of each class; one "class" if none were told apart."""
    means: np.ndarray
    """float64 `[classes, gates]`: mean of T over the examples of each class; NaN for a class without examples."""
    left: np.ndarray
    """float64 `[gates]`: how often T was below 0.1: the layer carries."""
    right: np.ndarray
    """float64 `[gates]`: how often T was above 0.9: the layer transforms."""
    slope: np.ndarray
    """float64 `[gates]`: the largest slope T * (1 - T) of the gate on any example and place."""
    dtypes: tuple[str, ...]
    """For each layer, the dtype in which it computes."""
    weights: np.ndarray | None = None
    """float64 `[classes, gates]`: what each mean is over: the sum of the weights of examples, under a mask of those of
    their steps. None where that is `counts`: there is neither."""

    @property
    def mean(self) -> np.ndarray:
        """Mean of T over all examples (paper, Figure 2, second column); float64 `[gates]`."""
        weights = self.counts[:, None] if self.weights is None else self.weights
        with np.errstate(invalid="ignore"):
            return np.nansum(self.means * weights, axis=0) / weights.sum(axis=0)

    @property
    def differences(self) -> np.ndarray:
        """Mean of T of a class minus that of all examples (paper, Figure 3); float64 `[classes, gates]`."""
        return self.means - self.mean

    @property
    def dead(self) -> np.ndarray:
        """Whether the slope rounds to 0 on every example, so that no gradient reaches the gate; bool `[gates]`.

        To the dtype in which the layer computes; bfloat16 has the exponents of float32. In float16 a gate is dead where
        T stays below 3e-8 (-17.3 before the sigmoid), in float32 where it is 0, and in both where T rounds to 1.
        """
        layers = zip(self.layout.split(self.slope).values(), self.dtypes, strict=True)
        return np.concatenate([slope.astype(_format(dtype)) == 0 for slope, dtype in layers])


def gate_statistics(
    model: keras.Model, batches: Batches, classes: int | None = None, told: Told | None = None
) -> GateStatistics:
    """Reads the gates of a model over a data set, batch by batch, and keeps sums alone.

    Args:
        model: any built Keras model.
        batches: pairs (x, y), or (x, y, weights) with weights of examples, `[batch]`. Of y only the classes are read:
            class numbers `[batch]` or `[batch, 1]`, or one-hot or probabilities, `[batch, classes]`.
        classes: how many there are; None tells none apart, and y may be anything.
        told: is called with the number of examples done after each batch.

    Returns:
        The statistics. Fractions of saturated gates are those of Karpathy, Johnson and Fei-Fei 2015, "Visualizing and
        Understanding Recurrent Networks" (arXiv 1506.02078, section 4.2): left-saturated below 0.1, right-saturated
        above 0.9. That of dead gates is ours.

    Raises:
        ValueError: if the model has no highway layers, there is no example or all are masked, or y has no classes.

    Example:
        found = gate_statistics(model, in_batches(images, labels), classes=10)
        found.layout.split(found.differences[7])["highway_03"]  # what the gates of layer 3 do more for sevens, [units]

    Reference:
        arXiv 1507.06228, sections 4 and 4.1, Figures 2 and 3.
    """
    program: SumsModel | None = None
    counts, totals = np.zeros(classes or 1), dict[str, Any]()
    for x, y, count, of_examples in even(batches):
        if program is None:
            layout, layers = highway_layers(model, x)
            program = SumsModel(model, layout)
        size = count_of(x)
        numbers = class_of_each(y, classes) if classes else np.zeros(size, int)
        weights = np.eye(classes or 1, dtype="float32")[numbers]
        weights[count:] = 0  # What fills the last batch does not count.
        counts += weights.sum(axis=0)
        if of_examples is not None:
            weights *= _column(of_examples)
        found = program.predict_on_batch({"x": x, "weights": weights})
        slope = np.maximum(found.pop("slope"), totals.pop("slope", 0.0))
        totals = {name: totals.get(name, 0.0) + sums.astype("float64") for name, sums in found.items()}
        totals["slope"] = slope
        if told:
            told(int(counts.sum()))
    weights = totals["weights"]
    if not weights.any():
        raise ValueError("There is nothing to measure: every example has the weight 0, or is masked.")
    with np.errstate(invalid="ignore"):
        means = totals["open"] / weights
        left, right = (totals[name] / weights.sum(axis=0) for name in ("left", "right"))
    repeated = [layer for call, layer in zip(layout.calls, layers, strict=True) for _ in range(call.depth or 1)]
    return GateStatistics(
        layout,
        np.concatenate([np.ravel(ops.convert_to_numpy(layer.transform_bias)) for layer in layers]).astype("float64"),
        np.array([layer.initial_transform_bias for layer in repeated]),
        counts.astype(int),
        means,
        left,
        right,
        totals["slope"].astype("float64"),
        tuple(layer.compute_dtype for layer in repeated),
        None if np.array_equal(weights, np.broadcast_to(counts[:, None], weights.shape)) else weights,
    )


class SumsModel(compiling.Program):
    """Sums over one batch, `[classes, gates]` or `[gates]`."""

    def __init__(self, model: keras.Model, layout: Layout) -> None:
        super().__init__(model, autocast=False)
        self.layout = layout
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """From "x" and "weights", `[batch, classes]`, to the sums by name; of "slope" the maximum."""
        with recording() as recorded:
            self.model(inputs["x"], training=False)
        # Each in the gates' own dtype: of Keras's backends not all promote.
        transform = {name: ops.cast(gate, "float32") for name, gate in recorded.items()}
        weights = inputs["weights"]

        def reduced(values: dict[str, Any], reduce: Reduce) -> Any:
            return flat(values, recorded.masks, self.layout, reduce)

        def total(share: dict[str, Any]) -> Any:
            return ops.matmul(ops.transpose(weights), reduced(share, places.total))

        def often(condition: Any) -> Any:
            return ops.sum(
                total({name: ops.cast(condition(gate), "float32") for name, gate in transform.items()}), axis=0
            )

        slopes = reduced({name: gate * (1 - gate) for name, gate in transform.items()}, places.largest)
        counted = ops.cast(ops.any(weights > 0, axis=1, keepdims=True), "float32")
        return {
            "open": total(transform),
            "weights": ops.matmul(ops.transpose(weights), reduced(transform, places.weight)),
            "left": often(lambda gate: gate < LEFT),
            "right": often(lambda gate: gate > RIGHT),
            "slope": ops.max(slopes * counted, axis=0),
        }


def _column(weights: np.ndarray) -> np.ndarray:
    if weights.size != len(weights):
        raise ValueError(
            "Gates are weighted by examples, [batch]; steps that do not count are left out by a mask of the layers. "
            f"Received: weights of shape {weights.shape}"
        )
    return weights.reshape(-1, 1)


def _format(dtype: str) -> str:
    return "float16" if dtype == "float16" else gate_dtype(dtype)
