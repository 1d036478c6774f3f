"""The route that each example takes through the gates, as a vector that can be clustered."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, places
from highway_keras.analysis.batches import count_of
from highway_keras.analysis.gate_values import GateModel
from highway_keras.analysis.labels import class_of_each
from highway_keras.analysis.layout import Layout, flat, highway_layers
from highway_keras.layers.recording import recording


def signatures(
    model: keras.Model, x: np.ndarray, per: Literal["layer", "unit"] = "layer", batch_size: int = 128
) -> np.ndarray:
    """The routing signature of each example: how far it opens the gates.

    Args:
        model: any built Keras model with highway layers.
        x: examples `[examples, ...]`.
        per: "layer" for the mean gate of each layer; "unit" for every gate, of a convolutional layer the mean of each
            channel over its places.
        batch_size: examples in one step.

    Returns:
        float32 `[examples, layers]` or `[examples, gates]`; layers in the order of their calls, and within a layer its
        units, as `highway_layers(model, x)[0]` tells. Steps that a mask leaves out do not count; an example of which
        no step counts has NaN.

    Raises:
        ValueError: if the model has no highway layers.

    Example:
        from sklearn.cluster import KMeans

        clusters = KMeans(5, random_state=0).fit_predict(signatures(model, images, per="unit"))
    """
    if not count_of(x):
        raise ValueError("There are no gates to read: x holds no example.")
    layout, _ = highway_layers(model, x[:1])
    if per == "layer":
        return np.stack(list(GateModel(model, mean=True).read(x, batch_size).values()), axis=1)
    return UnitModel(model, layout).predict(x, batch_size=batch_size, verbose=0)


class UnitModel(compiling.Program):
    """The gates of every unit of a model, `[batch, gates]`."""

    def __init__(self, model: keras.Model, layout: Layout) -> None:
        super().__init__(model, autocast=False)
        self.layout = layout

    def call(self, inputs: Any) -> Any:
        """Runs the model in inference."""
        with recording() as recorded:
            self.model(inputs, training=False)
        return ops.cast(flat(recorded, recorded.masks, self.layout, places.mean), "float32")


def explained_by_class(routes: np.ndarray, labels: np.ndarray) -> float:
    """How much of what routes differ in is told by the class: the variance between classes, as a share of all variance.

    It is the correlation ratio, eta squared, of all columns together.

    Args:
        routes: from `signatures`, `[examples, columns]`.
        labels: class numbers `[examples]` or `[examples, 1]`, or one-hot `[examples, classes]`.

    Returns:
        Between 0, the classes take the same routes on average, and 1, the class says all. NaN if no two routes differ.

    Raises:
        ValueError: if there is not one label for each route.
    """
    count_of((routes, labels))
    labels = class_of_each(labels)
    routes = routes.astype("float64")
    mean = routes.mean(axis=0)
    total = np.square(routes - mean).sum()
    between = sum(
        np.sum(labels == label) * np.square(routes[labels == label].mean(axis=0) - mean).sum()
        for label in np.unique(labels)
    )
    return float(between / total) if total else float("nan")
