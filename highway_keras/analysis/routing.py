"""Routing signatures: how far each example opens the gates, as a vector that can be clustered."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, reductions
from highway_keras.analysis.batches import count_of
from highway_keras.analysis.gate_values import GateModel
from highway_keras.analysis.labels import class_numbers
from highway_keras.analysis.layout import Layout, highway_layers
from highway_keras.layers.recording import recording


def signatures(
    model: keras.Model, x: np.ndarray, per: Literal["layer", "unit"] = "layer", batch_size: int = 128
) -> np.ndarray:
    """Computes the routing signature of each example: how far it opens the gates.

    Args:
        model: any built Keras model with highway layers.
        x: examples `[examples, ...]`.
        per: "layer" for the mean gate of each layer; "unit" for every gate, averaged over positions in convolutional
            layers.
        batch_size: examples per step.

    Returns:
        float32 `[examples, layers]` or `[examples, gates]`, ordered by layer and unit as in
        `highway_layers(model, x)[0]`. Masked steps do not count; an example with all steps masked has NaN.

    Raises:
        ValueError: if the model has no highway layers.

    Example:
        from sklearn.cluster import KMeans

        clusters = KMeans(5, random_state=0).fit_predict(signatures(model, images, per="unit"))
    """
    if not count_of(x):
        raise ValueError("There are no gates to read: x contains no examples.")
    layout, _ = highway_layers(model, x[:1])
    if per == "layer":
        return np.stack(list(GateModel(model, mean=True).read(x, batch_size).values()), axis=1)
    return UnitModel(model, layout).predict(x, batch_size=batch_size, verbose=0)


class UnitModel(compiling.Program):
    """A model that outputs the gate of every unit of another model, `[batch, gates]`."""

    def __init__(self, model: keras.Model, layout: Layout) -> None:
        super().__init__(model)
        self.layout = layout

    def call(self, inputs: Any) -> Any:
        """Returns T, averaged over positions."""
        with recording() as recorded:
            self.model(inputs, training=False)
        return ops.cast(reductions.per_unit(recorded, recorded.masks, self.layout, reductions.mean), "float32")


def explained_by_class(routes: np.ndarray, labels: np.ndarray) -> float:
    """Computes the share of the variance of routes that is between classes.

    This is the correlation ratio, eta squared, of all columns together.

    Args:
        routes: the result of `signatures`, `[examples, columns]`. Examples with NaN, those with all steps masked, are
            left out.
        labels: class numbers `[examples]` or `[examples, 1]`, or one-hot labels `[examples, classes]`.

    Returns:
        A number from 0 (all classes take the same route on average) to 1 (the class determines the route). NaN if all
        routes are equal or NaN.

    Raises:
        ValueError: if routes and labels differ in length, or the labels are not classes.

    Example:
        explained_by_class(signatures(model, images), labels)  # near 0 if routes do not depend on the class
    """
    count_of((routes, labels))
    known = ~np.isnan(routes).any(axis=1)
    routes, labels = routes[known].astype("float64"), class_numbers(labels)[known]
    if not len(routes):
        return float("nan")
    mean = routes.mean(axis=0)
    total = np.square(routes - mean).sum()
    between = sum(
        np.sum(labels == label) * np.square(routes[labels == label].mean(axis=0) - mean).sum()
        for label in np.unique(labels)
    )
    return float(between / total) if total else float("nan")
