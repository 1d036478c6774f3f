"""Recognition of a model's outputs by its last layer: logits or probabilities."""

from collections.abc import Iterator
from typing import Any, Literal

import keras
from keras import activations, layers

Kind = Literal["linear", "softmax", "sigmoid"]

RESHAPING = (layers.Flatten, layers.Reshape)
# Logits and probabilities stay such; after one that mixes classes with places, the latter have no sum of 1.
PASSING = (
    *RESHAPING,
    layers.Dropout,
    layers.GlobalAveragePooling1D,
    layers.GlobalAveragePooling2D,
    layers.GlobalAveragePooling3D,
    layers.Identity,
)
ACTIVATED = (
    layers.Activation,
    layers.Conv1D,
    layers.Conv2D,
    layers.Conv3D,
    layers.Dense,
    layers.EinsumDense,
)
KINDS: dict[Any, Kind] = {
    activations.linear: "linear",
    activations.log_softmax: "linear",  # The softmax of logarithms of probabilities are the probabilities.
    activations.softmax: "softmax",
    activations.sigmoid: "sigmoid",
}


def kind(model: keras.Model) -> Kind | None:
    """The activation that the last layer of a model applies.

    Args:
        model: a functional or sequential model of one output; of another kind of model nothing is known.

    Returns:
        "linear", "softmax" or "sigmoid"; None if it is not known.

    Example:
        >>> kind(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")]))
        'softmax'
    """
    mixed = False
    for layer in _from_the_last(model):
        if isinstance(layer, PASSING) or (
            isinstance(layer, layers.Activation) and layer.activation is activations.linear
        ):
            mixed = mixed or (isinstance(layer, RESHAPING) and not _keeps_width(layer))
            continue
        found = _of_layer(layer)
        return None if found == "softmax" and mixed else found
    return None


def _of_layer(layer: Any) -> Kind | None:
    if isinstance(layer, layers.TimeDistributed):
        return _of_layer(layer.layer)
    if isinstance(layer, keras.Model):
        return kind(layer)
    if isinstance(layer, layers.Softmax):
        return "softmax" if layer.axis == -1 else None
    return KINDS.get(layer.activation) if isinstance(layer, ACTIVATED) else None


def _keeps_width(layer: Any) -> bool:
    try:
        return bool(layer.input.shape[-1] == layer.output.shape[-1])
    except (AttributeError, ValueError):  # It was called several times: which of the calls is meant is not known.
        return False


def _from_the_last(model: keras.Model) -> Iterator[Any]:
    """The layers of a model, each the maker of what the one before it takes, as far as they are known."""
    if isinstance(model, keras.Sequential):
        yield from reversed(model.layers)
        return
    outputs = list(getattr(model, "outputs", []))  # A subclassed model has no graph.
    layer = _maker(model, outputs[0]) if len(outputs) == 1 else None
    while layer is not None:
        yield layer
        layer = _maker(model, layer.input)


def _maker(model: keras.Model, tensor: Any) -> Any:
    """The layer of a model whose only call gave a tensor; None if it is none of them."""
    for layer in reversed(model.layers):
        try:
            if layer.output is tensor:
                return layer
        except (AttributeError, ValueError):  # It was called several times, or never on its own.
            continue
    return None
