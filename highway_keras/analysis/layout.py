"""The layout of all gates of a model along one axis, by layer."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from highway_keras.layers.recording import Recording, layer_names, recording


@dataclass(frozen=True)
class Call:
    """One call of a highway layer or stack."""

    name: str
    """Name of the layer, with the suffix ":2", ":3" and so on from its second call on."""
    depth: int | None
    """Number of layers of a stack, else None."""
    units: int
    """Units or channels per layer."""
    places: int = 1
    """Positions per channel: pixels of a feature map, or steps of a sequence."""
    axis: int = -1
    """Axis of the units in T: 1 for channels first."""

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers that it calls: those of a stack, or one."""
        return (self.name,) if self.depth is None else tuple(layer_names(self.name, self.depth))


@dataclass(frozen=True)
class Layout:
    """The highway layers of a model in call order; the layers of a stack count one by one.

    Arrays over all gates of a model have one axis of length `gates`, ordered by layer and then by unit. The units of a
    convolutional layer are its channels.
    """

    calls: tuple[Call, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the layers."""
        return tuple(itertools.chain.from_iterable(call.layers for call in self.calls))

    @property
    def units(self) -> tuple[int, ...]:
        """Units of each layer."""
        return tuple(itertools.chain.from_iterable([call.units] * (call.depth or 1) for call in self.calls))

    @property
    def gates(self) -> int:
        """Total number of units."""
        return sum(self.units)

    @property
    def values(self) -> int:
        """Gate values per example: for a convolutional layer, one per channel and position."""
        return sum(call.units * (call.depth or 1) * call.places for call in self.calls)

    @property
    def unit(self) -> str:
        """Label of a unit: "channel" if all layers are convolutional, else "unit"."""
        kinds = {"channel" if call.places > 1 else "unit" for call in self.calls}
        return kinds.pop() if len(kinds) == 1 else "unit"

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """Splits an array over all gates by layer.

        Args:
            array: `[..., gates]`.

        Returns:
            Arrays `[..., units]` by layer name.
        """
        ends = np.cumsum(self.units)[:-1]
        return dict(zip(self.layers, np.split(array, ends, axis=-1), strict=True))

    def spread(self, array: np.ndarray) -> np.ndarray:
        """Repeats the value of each layer for all of its units.

        Args:
            array: `[..., layers]`.

        Returns:
            `[..., gates]`.
        """
        return np.repeat(array, self.units, axis=-1)

    def parts(self) -> Iterator[tuple[Call, slice, int]]:
        """Divides the gates axis among the calls.

        Yields:
            Each call, its slice of the axis, and the number of layers before it.
        """
        gate = layer = 0
        for call in self.calls:
            stop = gate + call.units * (call.depth or 1)
            yield call, slice(gate, stop), layer
            gate, layer = stop, layer + (call.depth or 1)


class _SymbolicCall(keras.Operation):
    """Calls a model on shapes and dtypes, and keeps the recording."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.model = model
        self.recorded = Recording()

    def call(self, inputs: Any) -> Any:
        with recording() as self.recorded:
            return self.model(inputs, training=False)


def highway_layers(model: keras.Model, x: Any) -> tuple[Layout, list[Any]]:
    """Finds the highway layers of a model from shapes alone.

    Args:
        model: any built Keras model.
        x: a batch of its inputs; only shapes and dtypes are read.

    Returns:
        The layout, and the layer behind each of its calls: a `Highway`, `ConvHighway` or `HighwayStack`.

    Raises:
        ValueError: if the model has no highway layer.

    Example:
        layout, layers = highway_layers(model, images[:1])
        layout.layers  # ("highway_01", "highway_02", ...)
    """
    recorded, _ = trace(model, x)
    return layout_of(recorded, model), list(recorded.layers.values())


def trace(model: keras.Model, x: Any) -> tuple[Recording, Any]:
    """Runs a model symbolically, on shapes and dtypes only.

    Args:
        model: any Keras model.
        x: a batch of its inputs; only shapes and dtypes are read.

    Returns:
        The recording, and the outputs as `keras.KerasTensor`s.
    """
    if not model.built:  # The first call of a model calls its layers twice.
        _SymbolicCall(model).compute_output_spec(keras.tree.map_structure(_spec, x))
    call = _SymbolicCall(model)
    outputs = call.compute_output_spec(keras.tree.map_structure(_spec, x))
    return call.recorded, outputs


def layout_of(recorded: Recording, model: keras.Model) -> Layout:
    """Returns the layout of a recording of a model.

    Raises:
        ValueError: if the recording is empty.
    """
    if not recorded:
        raise ValueError(f"The model has no highway layers. Received: model={model.name!r}")

    def call(name: str, shape: tuple[int | None, ...]) -> Call:
        depth = recorded.depths.get(name)
        axis = recorded.layers[name].unit_axis
        sizes = list(shape[1:] if depth is None else (*shape[1:-2], shape[-1]))
        units = sizes.pop(axis - 1 if axis > 0 else axis)
        return Call(name, depth, int(units or 0), math.prod(size or 1 for size in sizes), axis)

    return Layout(tuple(call(name, tuple(gate.shape)) for name, gate in recorded.items()))


def _spec(array: Any) -> keras.KerasTensor:
    array = array if hasattr(array, "dtype") else np.asarray(array)
    return keras.KerasTensor(tuple(array.shape), keras.backend.standardize_dtype(array.dtype))
