"""The transform gates of a whole model, read in one forward pass."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, places
from highway_keras.analysis.layout import Reduce
from highway_keras.layers.recording import Recording, layer_names, recording


class GateModel(compiling.Program):
    """A model whose outputs are the transform gates of every highway layer of another model, in inference.

    It holds the other model's own weights, not copies. Its `predict` compiles one program, and what is recorded while
    that program is traced is returned by that same program. It is a tool for reading, not a model to save.

    Args:
        model: any Keras model: functional, sequential, subclassed, nested.
        mean: whether to return, for each example, the mean gate of each layer in place of all gates; what is reduced
            inside the program never leaves it.

    Example:
        GateModel(model, mean=True).predict(images)["highway"]  # [examples]
    """

    layer_axis = -2

    def __init__(self, model: keras.Model, mean: bool = False) -> None:
        super().__init__(model)
        self.mean = mean
        if mean:
            self.layer_axis = -1
        self.layer_names: tuple[str, ...] = ()
        self.depths: dict[str, int] = {}

    def call(self, inputs: Any) -> dict[str, Any]:
        """Runs the model in inference; layer name to T, `[batch, ...]`, or to its mean, `[batch]`.

        A stack has its layers on an axis of their own: the last but one of T, and the last of the mean.
        """
        with recording() as recorded:
            self.model(inputs, training=False)
        # Backends return dictionaries sorted by key; names are not tensors, and may be kept from a trace.
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        return means_of_examples(recorded) if self.mean else dict(recorded)

    def read(self, x: Any, batch_size: int | None) -> dict[str, np.ndarray]:
        """The outputs for all of `x`, in the order in which the layers are called.

        Raises:
            ValueError: if there is no example, or a highway layer is called inside a loop.
        """
        if isinstance(x, list) and x and all(isinstance(batch, tuple) for batch in x):
            # Batches (x, y), of which Keras would take the first for all there is.
            x = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *[batch[0] for batch in x])
        if any(np.shape(array)[:1] == (0,) for array in keras.tree.flatten(x) if hasattr(array, "shape")):
            raise ValueError("There are no gates to read: x holds no example.")
        values = self.predict(x, batch_size=batch_size, verbose=0)
        return {layer: gate for name in self.layer_names for layer, gate in self._of_layers(name, values[name])}

    def _of_layers(self, name: str, gate: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
        if name not in self.depths:
            return [(name, gate)]
        layers = np.moveaxis(gate, self.layer_axis, 0)
        return zip(layer_names(name, self.depths[name]), layers, strict=True)


def means_of_examples(recorded: Recording) -> dict[str, Any]:
    """The mean gate of each layer for each example of a recording; for a graph of one's own, as exported ones.

    Args:
        recorded: from `highway_keras.layers.recording.recording`.

    Returns:
        Layer name to the mean of T over all units and places, `[batch]`; of a stack `[batch, depth]`. Of a layer that
        was called with a mask, over the places that count; NaN where none does.

    Example:
        with recording() as recorded:
            logits = model(images, training=False)
        means = means_of_examples(recorded)
    """
    return _over_examples(recorded, places.mean)


def _over_examples(recorded: Recording, reduce: Reduce) -> dict[str, Any]:
    def reduced(name: str, gate: Any) -> Any:
        gate = ops.moveaxis(gate, recorded.layers[name].unit_axis, -1)
        axes = set(range(1, len(gate.shape))) - ({len(gate.shape) - 2} if name in recorded.depths else set())
        return reduce(gate, tuple(sorted(axes)), places.real(gate, recorded.masks.get(name)))

    return {name: reduced(name, gate) for name, gate in recorded.items()}


class MeanModel(GateModel):
    """A model whose outputs are what the mean gates over any number of examples are made of; see `GateModel`."""

    layer_axis = -1

    def call(self, inputs: Any) -> dict[str, Any]:
        """Layer name to the sum of T and what to divide it by, `[batch, 2]`; of a stack `[batch, 2, depth]`."""
        with recording() as recorded:
            self.model(inputs, training=False)
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        sums, weights = (_over_examples(recorded, reduce) for reduce in (places.total, places.weight))
        return {name: ops.stack([sums[name], weights[name]], axis=1) for name in sums}

    def means(self, x: Any, batch_size: int | None) -> dict[str, float]:
        """The mean of T of each layer over all units, examples and places that count; NaN where none does."""
        found = {}
        for name, values in self.read(x, batch_size).items():
            sums, weights = np.ascontiguousarray(values.T)
            with np.errstate(invalid="ignore"):
                found[name] = float(np.mean(sums) / np.mean(weights))
        return found


def gates(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, np.ndarray]:
    """The transform gate T of every unit of every highway layer of a model, for each example.

    The whole model runs once. All gates of all examples are kept: for a convolutional net that is a number for each
    pixel and channel of each layer, so ask for few examples, or for `mean_gates`. Each call compiles a program; to read
    a model again and again, keep a `highway_keras.analysis.GateModel`.

    Masked steps have gates, too, as the layer computes them: leave them out of means of your own with the mask of the
    inputs. `mean_gates` does so itself.

    Args:
        model: any built Keras model.
        x: what `model.predict` would take.
        batch_size: examples in one step; None where `x` comes in batches already.

    Returns:
        Layer name to T, `[examples, ...]` of the shape of the layer's output, float32, values in [0, 1], in the order
        in which the layers are called. A layer called twice, or of a name met before, gets ":2", ":3" and so on. Empty
        if the model has no highway layer.

    Example:
        for name, gate in highway_keras.gates(model, images[:100]).items():
            print(name, gate.mean(axis=0))  # one value a unit

    Reference:
        arXiv 1507.06228, section 4 and Figure 2.
    """
    return GateModel(model).read(x, batch_size)


def mean_gates(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, float]:
    """The mean transform gate of every highway layer of a model, over all units, examples and places.

    Where a layer gets a mask, as from `Embedding(mask_zero=True)` and `Masking`, padded steps do not count: the mean is
    over the real steps of all examples, each of the same weight.

    Args:
        model: any built Keras model.
        x: what `model.predict` would take.
        batch_size: examples in one step; None where `x` comes in batches already.

    Returns:
        Layer name to the mean of T, in [0, 1], in the order in which the layers are called; see `gates` for the names.
        NaN where no step counts.

    Example:
        >>> highway_keras.mean_gates(model, images)
        {'highway': 0.131, 'highway_1': 0.117}
    """
    return MeanModel(model).means(x, batch_size)
