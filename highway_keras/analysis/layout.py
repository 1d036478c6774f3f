"""The gates of a whole model in one row: which of them belong to which layer."""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import places
from highway_keras.layers.recording import Recording, layer_names, recording


@dataclass(frozen=True)
class Call:
    """One call of a highway layer, or of a stack of them."""

    name: str
    """The layer's; from the second call of that name on with ":2", ":3" and so on."""
    depth: int | None
    """Number of layers of a stack."""
    units: int
    """Units, or channels, of each layer."""
    places: int = 1
    """Places that share a channel: the pixels of a map, the steps of a sequence."""
    axis: int = -1
    """The axis of T on which the units lie: 1 where the channels come first."""

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of its layers."""
        return (self.name,) if self.depth is None else tuple(layer_names(self.name, self.depth))


@dataclass(frozen=True)
class Layout:
    """The highway layers of a model in the order of their calls; each layer of a stack counts on its own.

    Arrays over all gates of a model have one axis for them, `gates` long: layer after layer, and in each layer unit
    after unit. Units of a convolutional layer are its channels.
    """

    calls: tuple[Call, ...]

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers."""
        return tuple(itertools.chain.from_iterable(call.layers for call in self.calls))

    @property
    def units(self) -> tuple[int, ...]:
        """Units of each layer."""
        return tuple(itertools.chain.from_iterable([call.units] * (call.depth or 1) for call in self.calls))

    @property
    def gates(self) -> int:
        """Units of all layers."""
        return sum(self.units)

    @property
    def values(self) -> int:
        """Gates of one example: of a convolutional layer one for each channel and place."""
        return sum(call.units * (call.depth or 1) * call.places for call in self.calls)

    @property
    def unit(self) -> str:
        """What units are called: "channel" where all layers have places, else "unit"."""
        kinds = {"channel" if call.places > 1 else "unit" for call in self.calls}
        return kinds.pop() if len(kinds) == 1 else "unit"

    def split(self, array: np.ndarray) -> dict[str, np.ndarray]:
        """From an array over all gates to one for each layer.

        Args:
            array: `[..., gates]`.

        Returns:
            Layer name to `[..., units]`.
        """
        ends = np.cumsum(self.units)[:-1]
        return dict(zip(self.layers, np.split(array, ends, axis=-1), strict=True))

    def spread(self, array: np.ndarray) -> np.ndarray:
        """From an array over the layers to one over all gates: each unit gets what its layer has.

        Args:
            array: `[..., layers]`.

        Returns:
            `[..., gates]`.
        """
        return np.repeat(array, self.units, axis=-1)

    def parts(self) -> Iterator[tuple[Call, slice, int]]:
        """Each call, its place among all gates, and how many layers come before it."""
        gate = layer = 0
        for call in self.calls:
            stop = gate + call.units * (call.depth or 1)
            yield call, slice(gate, stop), layer
            gate, layer = stop, layer + (call.depth or 1)


def layout_of(recorded: Recording) -> Layout:
    """The layout of what was recorded."""

    def call(name: str, shape: tuple[int | None, ...]) -> Call:
        depth = recorded.depths.get(name)
        axis = recorded.layers[name].unit_axis
        sizes = list(shape[1:] if depth is None else (*shape[1:-2], shape[-1]))
        units = sizes.pop(axis - 1 if axis > 0 else axis)
        return Call(name, depth, int(units or 0), math.prod(place or 1 for place in sizes), axis)

    return Layout(tuple(call(name, tuple(gate.shape)) for name, gate in recorded.items()))


Reduce = Callable[[Any, places.Axes, Any], Any]
"""From an array, the axes of its places and which of its values count to the array without them."""


def flat(values: Mapping[str, Any], masks: Mapping[str, Any], layout: Layout, reduce: Reduce) -> Any:
    """Something of each gate of a recording, `[batch, gates]`, with its places reduced to one number.

    Args:
        values: T, or a function of it, by the names of the calls: `[batch, places ..., units]` or with the units where
            `Call.axis` says, of a stack `[batch, ..., depth, units]`.
        masks: of the recording.
        layout: of the recording.
        reduce: one of `highway_keras.analysis.places`.
    """
    rows = []
    for call in layout.calls:
        array = ops.moveaxis(values[call.name], call.axis, -1)
        axes = tuple(range(1, len(array.shape) - (1 if call.depth is None else 2)))
        reduced = reduce(array, axes, places.real(array, masks.get(call.name)))
        rows.append(ops.reshape(reduced, (-1, call.units * (call.depth or 1))))
    return ops.concatenate(rows, axis=1)


class _Finder(keras.Operation):
    """Runs a model on shapes alone, and keeps what it recorded."""

    def __init__(self, model: keras.Model) -> None:
        super().__init__()
        self.model = model
        self.found = Recording()

    def call(self, inputs: Any) -> Any:
        with recording() as self.found:
            return self.model(inputs, training=False)


def highway_layers(model: keras.Model, x: Any) -> tuple[Layout, list[Any]]:
    """The highway layers of a model, without computing anything.

    Args:
        model: any built Keras model.
        x: a batch that it would take; its shapes and dtypes are read.

    Returns:
        The layout, and for each of its calls the layer: a `Highway`, `ConvHighway` or `HighwayStack`.

    Raises:
        ValueError: if the model has no highway layer.

    Example:
        layout, layers = highway_layers(model, images[:1])
        layout.layers  # ("highway_01", "highway_02", ...)
    """
    recorded, _ = traced(model, x)
    return known(recorded, model), list(recorded.layers.values())


def traced(model: keras.Model, x: Any) -> tuple[Recording, Any]:
    """What a model records for a batch and what it gives, as shapes and dtypes: nothing is computed.

    Args:
        model: any Keras model.
        x: a batch that it would take; its shapes and dtypes are read.

    Returns:
        The recording, and the outputs as `keras.KerasTensor`s.
    """
    if not model.built:  # The first call of a model calls its layers twice.
        _Finder(model).compute_output_spec(keras.tree.map_structure(_spec, x))
    finder = _Finder(model)
    outputs = finder.compute_output_spec(keras.tree.map_structure(_spec, x))
    return finder.found, outputs


def known(recorded: Recording, model: keras.Model) -> Layout:
    """The layout of what a model recorded.

    Raises:
        ValueError: if that is nothing.
    """
    if not recorded:
        raise ValueError(f"The model has no highway layers whose gates could be read. Received: model={model.name!r}")
    return layout_of(recorded)


def _spec(array: Any) -> keras.KerasTensor:
    array = array if hasattr(array, "dtype") else np.asarray(array)
    return keras.KerasTensor(tuple(array.shape), keras.backend.standardize_dtype(array.dtype))
