"""Gate statistics over a data set: means, means by class, saturation and dead gates."""

from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, reductions
from highway_keras.analysis.batches import Batches, Progress, count_of, padded
from highway_keras.analysis.labels import class_numbers
from highway_keras.analysis.layout import Layout, highway_layers
from highway_keras.layers.equations import gate_slope
from highway_keras.layers.gate import gate_dtype
from highway_keras.layers.recording import recording

LEFT, RIGHT = 0.1, 0.9


@dataclass(frozen=True)
class GateStatistics:
    """Statistics of a model's gates over a data set. Arrays `[gates]` cover all layers; `layout.split` groups them.

    The gates of a convolutional channel are pooled over its positions. Masked steps do not count; all others weigh the
    same.
    """

    layout: Layout
    """The gates of each layer."""
    bias: np.ndarray
    """float64 `[gates]`: biases of the transform gates (paper, Figure 2, first column)."""
    initial_bias: np.ndarray
    """float64 `[layers]`: their initial values."""
    counts: np.ndarray
    """int `[classes]`: examples of each class; a single entry if classes are not distinguished."""
    means: np.ndarray
    """float64 `[classes, gates]`: mean of T over the examples of each class; NaN for a class without examples."""
    left: np.ndarray
    """float64 `[gates]`: fraction of T below 0.1, where the unit carries."""
    right: np.ndarray
    """float64 `[gates]`: fraction of T above 0.9, where the unit transforms."""
    slope: np.ndarray
    """float64 `[gates]`: largest slope T * (1 - T) over all examples and positions."""
    dtypes: tuple[str, ...]
    """Compute dtype of each layer."""
    weights: np.ndarray | None = None
    """float64 `[classes, gates]`: divisor of each mean, the sum of the weights of all unmasked positions. None if these
    are proportional to `counts`, as without weights and masks if all examples have the same size."""

    @property
    def mean(self) -> np.ndarray:
        """Mean of T over all examples (paper, Figure 2, second column); float64 `[gates]`."""
        weights = self.counts[:, None] if self.weights is None else self.weights
        with np.errstate(invalid="ignore"):
            return np.nansum(self.means * weights, axis=0) / weights.sum(axis=0)

    @property
    def differences(self) -> np.ndarray:
        """Mean of T of each class minus that of all examples (paper, Figure 3); float64 `[classes, gates]`."""
        return self.means - self.mean

    @property
    def dead(self) -> np.ndarray:
        """True where the slope rounds to 0 on every example, so that no gradient reaches the gate; bool `[gates]`.

        Rounding is to the layer's compute dtype; bfloat16 has the exponent range of float32. In float16 a gate is dead
        where T stays below 3e-8 (-17.3 before the sigmoid), in float32 where T is 0, and in both where T rounds to 1.
        """
        layers = zip(self.layout.split(self.slope).values(), self.dtypes, strict=True)
        return np.concatenate([slope.astype(_format(dtype)) == 0 for slope, dtype in layers])


def gate_statistics(
    model: keras.Model, batches: Batches, classes: int | None = None, progress: Progress | None = None
) -> GateStatistics:
    """Computes gate statistics over a data set, batch by batch, keeping only sums in memory.

    Args:
        model: any built Keras model.
        batches: pairs (x, y), or (x, y, weights) with weights of examples, `[batch]`. y holds class numbers `[batch]`
            or `[batch, 1]`, or one-hot labels or probabilities, `[batch, classes]`.
        classes: number of classes; None does not distinguish classes and ignores y.
        progress: called after each batch with the number of examples processed so far.

    Returns:
        The statistics. Saturation follows Karpathy, Johnson and Fei-Fei 2015, "Visualizing and Understanding Recurrent
        Networks" (arXiv 1506.02078, section 4.2): left-saturated below 0.1, right-saturated above 0.9. The definition
        of dead gates is ours.

    Raises:
        ValueError: if the model has no highway layers, there are no examples, all are masked, or y holds no classes.

    Example:
        statistics = gate_statistics(model, in_batches(images, labels), classes=10)
        statistics.layout.split(statistics.differences[7])["highway_03"]  # layer 3 on sevens against all, [units]

    Reference:
        arXiv 1507.06228, sections 4 and 4.1, Figures 2 and 3.
    """
    program: SumsModel | None = None
    counts, totals = np.zeros(classes or 1), dict[str, Any]()
    for x, y, count, example_weights in padded(batches):
        if program is None:
            layout, layers = highway_layers(model, x)
            program = SumsModel(model, layout)
        size = count_of(x)
        numbers = class_numbers(y, classes) if classes else np.zeros(size, int)
        weights = np.eye(classes or 1, dtype="float32")[numbers]
        weights[count:] = 0  # Padding does not count.
        counts += weights.sum(axis=0)
        if example_weights is not None:
            weights *= _column(example_weights)
        sums = program.predict_on_batch({"x": x, "weights": weights})
        slope = np.maximum(sums.pop("slope"), totals.pop("slope", 0.0))
        totals = {name: totals.get(name, 0.0) + array.astype("float64") for name, array in sums.items()}
        totals["slope"] = slope
        if progress:
            progress(int(counts.sum()))
    weights = totals["weights"]
    if not weights.any():
        raise ValueError("There is nothing to measure: every example has weight 0 or is masked.")
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
        None if np.allclose(weights, counts[:, None] * weights.sum(axis=0) / counts.sum(), 1e-6, 0) else weights,
    )


def open_layers(statistics: GateStatistics) -> float:
    """Sums the mean gates of all layers: the average number of layers that transform a unit.

    The definition is ours. It has the form of the expected depth of nets with stochastic depth, the sum of the survival
    probabilities of their layers (Huang et al. 2016, arXiv 1603.09382, section 3). It ignores whether the
    transformation matters.

    Args:
        statistics: the result of `gate_statistics`.

    Returns:
        A number between 0 and the number of layers.

    Example:
        open_layers(gate_statistics(model, batches))  # at most 49 for a net of 50 layers, the first of which is plain
    """
    return float(sum(np.mean(means) for means in statistics.layout.split(statistics.mean).values()))


class SumsModel(compiling.Program):
    """A model that computes the sums of a batch, `[classes, gates]` or `[gates]`."""

    def __init__(self, model: keras.Model, layout: Layout) -> None:
        super().__init__(model)
        self.layout = layout
        self.built = True

    def call(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Maps "x" and "weights", `[batch, classes]`, to sums by name; "slope" is a maximum."""
        with recording() as recorded:
            self.model(inputs["x"], training=False)
        # Not all backends of Keras promote dtypes.
        transform = {name: ops.cast(gate, "float32") for name, gate in recorded.items()}
        weights = inputs["weights"]

        def reduced(values: dict[str, Any], reduction: reductions.Reduction) -> Any:
            return reductions.per_unit(values, recorded.masks, self.layout, reduction)

        def total(values: dict[str, Any]) -> Any:
            return ops.matmul(ops.transpose(weights), reduced(values, reductions.total))

        def count(condition: Any) -> Any:
            return ops.sum(
                total({name: ops.cast(condition(gate), "float32") for name, gate in transform.items()}), axis=0
            )

        slopes = reduced({name: gate_slope(gate) for name, gate in transform.items()}, reductions.maximum)
        counted = ops.cast(ops.any(weights > 0, axis=1, keepdims=True), "float32")
        return {
            "open": total(transform),
            "weights": ops.matmul(ops.transpose(weights), reduced(transform, reductions.weight)),
            "left": count(lambda gate: gate < LEFT),
            "right": count(lambda gate: gate > RIGHT),
            "slope": ops.max(slopes * counted, axis=0),
        }


def _column(weights: np.ndarray) -> np.ndarray:
    if weights.size != len(weights):
        raise ValueError(
            "Weights must be per example, [batch]; to leave out steps, mask the layers' inputs. "
            f"Received: weights of shape {weights.shape}"
        )
    return weights.reshape(-1, 1)


def _format(dtype: str) -> str:
    return "float16" if dtype == "float16" else gate_dtype(dtype)
