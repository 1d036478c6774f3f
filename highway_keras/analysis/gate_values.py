"""Transform gates and layer outputs of a whole model, read in one forward pass."""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import compiling, reductions
from highway_keras.layers.recording import Recording, layer_names, recording


class GateModel(compiling.Program):
    """A model that outputs the transform gates of every highway layer of another model, in inference mode.

    It shares the other model's weights. Keep one to read a model repeatedly: `predict` compiles a single program. It is
    not meant to be saved.

    Args:
        model: any Keras model: functional, sequential, subclassed or nested.
        mean: whether to return the mean gate of each layer for each example instead of all gates. The reduction
            happens inside the compiled program.

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
        """Returns T by layer name, `[batch, ...]`, or its mean, `[batch]`.

        The layers of a stack have their own axis: the second-to-last of T, the last of the mean.
        """
        with recording() as recorded:
            self.model(inputs, training=False)
        # Backends sort dictionaries by key, so the call order is kept here; unlike tensors, names may leave a trace.
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        return means_of_examples(recorded) if self.mean else dict(recorded)

    def read(self, x: Any, batch_size: int | None) -> dict[str, np.ndarray]:
        """Predicts like `predict`, but returns the layers of a stack one by one, and all layers in call order.

        Args:
            x: inputs as for `predict`; labels and weights in batches (x, y) or (x, y, weights) are ignored.
            batch_size: examples per step; None if `x` is already batched.

        Returns:
            The outputs by layer name, such as T, `[examples, ...]`; see `gates` for the names.

        Raises:
            ValueError: if `x` is empty, or a highway layer is called inside a loop.
        """
        if isinstance(x, list) and x and all(isinstance(batch, tuple) for batch in x):
            # Keras would predict only the first of a list of batches (x, y).
            x = keras.tree.map_structure(lambda *parts: np.concatenate(parts), *[batch[0] for batch in x])
        elif isinstance(x, tuple) and len(getattr(self.model, "inputs", ())) == 1:
            x = x[0]  # A batch (x, y), or (x, y, weights).
        empty = any(np.shape(array)[:1] == (0,) for array in keras.tree.flatten(x) if hasattr(array, "shape"))
        if empty or (isinstance(x, list) and not x):
            raise ValueError("There are no gates to read: x contains no examples.")
        values = self.outputs(x, batch_size)
        return {layer: gate for name in self.layer_names for layer, gate in self._split_stack(name, values[name])}

    def _split_stack(self, name: str, gate: np.ndarray) -> Iterable[tuple[str, np.ndarray]]:
        if name not in self.depths:
            return [(name, gate)]
        layers = np.moveaxis(gate, self.layer_axis, 0)
        return zip(layer_names(name, self.depths[name]), layers, strict=True)


def means_of_examples(recorded: Recording) -> dict[str, Any]:
    """Computes the mean gate of each layer for each example of a recording, inside a graph such as an exported one.

    Args:
        recorded: recording, as yielded by `highway_keras.layers.recording.recording`.

    Returns:
        The mean of T over all units and positions by layer name, `[batch]`; for a stack `[batch, depth]`. Layers called
        with a mask average over the valid positions; NaN where there are none.

    Example:
        with recording() as recorded:
            logits = model(images, training=False)
        means = means_of_examples(recorded)
    """
    return reductions.per_call(recorded, reductions.mean)


def maps_of_examples(recorded: Recording) -> dict[str, Any]:
    """Computes a gate map of each convolutional layer for each image, inside a graph such as an exported one.

    Args:
        recorded: recording, as yielded by `highway_keras.layers.recording.recording`.

    Returns:
        The mean of T over channels by layer name, `[batch, height, width]`. Layers whose inputs are not feature maps,
        and layers called with a mask, are left out.

    Example:
        with recording() as recorded:
            logits = model(images, training=False)
        maps = maps_of_examples(recorded)
    """
    return {
        name: ops.mean(gate, axis=recorded.layers[name].unit_axis)
        for name, gate in recorded.items()
        if len(gate.shape) == 4 and name not in recorded.depths and name not in recorded.masks
    }


class OutputModel(GateModel):
    """A model that returns the outputs of every highway layer of another model, in inference mode; see `GateModel`."""

    def call(self, inputs: Any) -> dict[str, Any]:
        """Returns y by layer name, `[batch, ...]`; for a stack with an axis for its layers."""
        with recording(outputs=True) as recorded:
            self.model(inputs, training=False)
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        return dict(recorded.outputs or {})


class MeanModel(GateModel):
    """A model that outputs the sums from which mean gates over any number of batches are computed; see `GateModel`."""

    layer_axis = -1

    def call(self, inputs: Any) -> dict[str, Any]:
        """Returns the sum of T and its divisor by layer name, `[batch, 2]`; for a stack `[batch, 2, depth]`."""
        with recording() as recorded:
            self.model(inputs, training=False)
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        sums, weights = (reductions.per_call(recorded, each) for each in (reductions.total, reductions.weight))
        return {name: ops.stack([sums[name], weights[name]], axis=1) for name in sums}

    def means(self, x: Any, batch_size: int | None) -> dict[str, float]:
        """Returns the mean of T of each layer over units, examples and valid positions; NaN if there are none."""
        means = {}
        for name, values in self.read(x, batch_size).items():
            sums, weights = np.ascontiguousarray(values.T)
            with np.errstate(invalid="ignore"):
                means[name] = float(np.mean(sums) / np.mean(weights))
        return means


def gates(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, np.ndarray]:
    """Computes the transform gate T of every unit of every highway layer of a model for each example.

    The model runs once. All gates of all examples are kept in memory, for a convolutional net one value per pixel and
    channel of each layer, so pass few examples or use `mean_gates`. Each call compiles a program; to read a model
    repeatedly, keep a `highway_keras.analysis.GateModel`.

    Masked steps have gates as well, as computed by the layer. Exclude them from your own means with the mask of the
    inputs, as `mean_gates` does.

    Args:
        model: any built Keras model.
        x: inputs as for `model.predict`; labels and weights in batches (x, y) or (x, y, weights) are ignored.
        batch_size: examples per step; None if `x` is already batched.

    Returns:
        T in [0, 1] by layer name, in call order: float32 `[examples, ...]`, of the shape of the layer's output.
        Repeated names get the suffixes ":2", ":3" and so on. Empty if the model has no highway layer.

    Raises:
        ValueError: if `x` is empty, or a highway layer is called inside a loop of the backend, such as an RNN cell.

    Example:
        for name, gate in highway_keras.gates(model, images[:100]).items():
            print(name, gate.mean(axis=0))  # one value per unit

    Reference:
        arXiv 1507.06228, section 4 and Figure 2.
    """
    return GateModel(model).read(x, batch_size)


def mean_gates(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, float]:
    """Computes the mean transform gate of every highway layer of a model over all units, examples and positions.

    Masked steps, for example from `Embedding(mask_zero=True)` or `Masking`, do not count; all other steps of all
    examples weigh the same.

    Args:
        model: any built Keras model.
        x: inputs as for `model.predict`.
        batch_size: examples per step; None if `x` is already batched.

    Returns:
        The mean of T, in [0, 1], by layer name, in call order; see `gates` for the names. NaN if all steps are masked.

    Raises:
        ValueError: see `gates`.

    Example:
        >>> highway_keras.mean_gates(model, images)
        {'highway': 0.131, 'highway_1': 0.117}

    Reference:
        arXiv 1507.06228, section 4 and Figure 2, second column.
    """
    return MeanModel(model).means(x, batch_size)


def layer_outputs(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, np.ndarray]:
    """Computes the output y of every highway layer of a model for each example.

    Args:
        model: any built Keras model.
        x: inputs as for `model.predict`. All outputs of all examples are kept in memory, so pass few.
        batch_size: examples per step; None if `x` is already batched.

    Returns:
        The outputs by layer name, `[examples, ...]` of the shape of the layer's output, in the order and with the names
        of `gates`. Outputs within a stack are float32 under a mixed policy.

    Raises:
        ValueError: see `gates`.

    Example:
        for name, y in layer_outputs(model, images[:1]).items():
            print(name, y[0])  # one value per unit

    Reference:
        arXiv 1507.06228, section 4 and Figure 2, last column.
    """
    return OutputModel(model).read(x, batch_size)
