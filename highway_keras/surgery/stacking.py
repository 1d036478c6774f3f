"""Between a stack and the layers that it stands for, weights and all."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

import keras
import numpy as np

from highway_keras.layers import Highway, HighwayStack
from highway_keras.layers.highway_stack import UNSTACKED
from highway_keras.layers.recording import layer_names

# Keras builds, saves and loads a chain of layers by recursion; Python gives up at 1 000 levels.
LONGEST = 400


def unstacked(model: keras.Model) -> keras.Model:
    """A copy of a model in which every `HighwayStack` is a row of `Highway` layers.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A model that computes the same from copies of the weights. The layers are named after their stack and numbered.

    Raises:
        ValueError: if the layers of a stack would be too many for Keras to chain.

    Example:
        unstacked(model).get_layer("highway_stack_07").transform_bias
    """
    copy = _copied(model)
    stacks = [layer for layer in copy.layers if isinstance(layer, HighwayStack)]
    for stack in stacks:
        if stack.depth > LONGEST:
            raise ValueError(
                f"Keras chains at most about {LONGEST} layers; a stack has no such limit. "
                f"Received: '{stack.name}' with depth={stack.depth}"
            )
    return _rewired(copy, {stack.name: layers_of(stack) for stack in stacks})


def stacked(model: keras.Model) -> keras.Model:
    """A copy of a model in which every row of `Highway` layers that can be a `HighwayStack` is one.

    A row is two or more layers, each of which alone reads the one before it, with the same arguments but for names,
    seeds and initial biases. Layers with a separate carry gate, batch normalisation or dropout stay as they are.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A model that computes the same from copies of the weights. A stack bears the name of its first layer.

    Example:
        deep = stacked(model)
    """
    copy = _copied(model)
    rows: dict[str, list[HighwayStack]] = {}
    for row in _rows(copy):
        rows |= {layer.name: [] for layer in row[:-1]}
        rows[row[-1].name] = [stack_of(row)]
    return _rewired(copy, rows)


def layers_of(stack: HighwayStack) -> list[Highway]:
    """The layers of a built stack, one by one, with copies of its weights.

    Args:
        stack: with weights.

    Returns:
        `stack.depth` built layers, named after the stack and numbered from 1.

    Example:
        first, *others = layers_of(stack)
    """
    config = stack.get_config()
    del config["rematerialize"]
    config |= {"depth": None, "transform_bias": stack.initial_transform_bias}
    arrays = [np.asarray(array) for array in stack.get_weights()]
    layers = []
    for name, weights in zip(layer_names(stack.name, stack.depth), zip(*arrays, strict=True), strict=True):
        layer = Highway.from_config({**config, "name": name})
        layer.build((None, weights[0].shape[-1]))
        layer.set_weights(weights)
        layers.append(layer)
    return layers


def stack_of(layers: Sequence[Highway], name: str | None = None) -> HighwayStack:
    """One stack with copies of the weights of built layers.

    Args:
        layers: of one size, with the same arguments but for names, seeds and initial biases.
        name: of the stack; None for that of the first layer.

    Returns:
        A built stack of as many layers.

    Raises:
        ValueError: if the layers differ, or have what a stack has not.

    Example:
        stack_of([model.get_layer("highway"), model.get_layer("highway_1")])
    """
    first = layers[0]
    for layer in layers:
        if not _stackable(layer) or _shared(layer) != _shared(first):
            raise ValueError(
                f"The layers of a stack have the same arguments, and no {', '.join(UNSTACKED)}. "
                f"Received: '{first.name}' with {_shared(first)} and '{layer.name}' with {_shared(layer)}"
            )
    config = {key: value for key, value in first.get_config().items() if key not in UNSTACKED}
    config |= {
        "name": name or first.name,
        "depth": len(layers),
        "transform_bias": float(np.mean([layer.initial_transform_bias for layer in layers])),
    }
    stack = HighwayStack.from_config(config)
    stack.build((None, first.kernel.shape[-1]))
    stack.set_weights([np.stack(arrays) for arrays in zip(*(layer.get_weights() for layer in layers), strict=True)])
    return stack


def _rows(model: keras.Model) -> Iterator[list[Highway]]:
    """The rows of layers that can be stacked, in any graph: each layer alone reads the one before it."""
    readers = Counter(id(tensor) for layer in model.layers for tensor in _tensors(layer, "input"))
    readers.update(id(tensor) for tensor in model.outputs)
    single = [layer for layer in model.layers if _stackable(layer) and len(_tensors(layer, "input")) == 1]
    makers = {id(layer.output): layer for layer in single}
    before: dict[str, Highway] = {}
    for layer in single:
        maker = makers.get(id(layer.input))
        if maker is not None and readers[id(layer.input)] == 1 and _shared(maker) == _shared(layer):
            before[layer.name] = maker
    followed = {layer.name for layer in before.values()}
    for last in single:
        if last.name in before and last.name not in followed:
            row = [last]
            while row[0].name in before:
                row.insert(0, before[row[0].name])
            yield row


def _tensors(layer: Any, side: Literal["input", "output"]) -> list[Any]:
    """The tensors on one side of a layer; none of a layer that is called more than once."""
    try:
        return keras.tree.flatten(getattr(layer, side))
    except (AttributeError, ValueError):
        return []


def _stackable(layer: Any) -> bool:
    return type(layer) is Highway and all(getattr(layer, name) == value for name, value in UNSTACKED.items())


def _shared(layer: Highway) -> dict[str, Any]:
    """What the layers of one stack have in common."""
    config = layer.get_config()
    return {name: value for name, value in config.items() if name not in ("name", "depth", "transform_bias", "seed")}


def _copied(model: keras.Model) -> keras.Model:
    copy = keras.models.clone_model(model)
    copy.set_weights(model.get_weights())
    return copy


def _rewired(model: keras.Model, rows: dict[str, list[Any]]) -> keras.Model:
    """The model with each layer that is named replaced by a row of layers, none or more."""
    if isinstance(model, keras.Sequential):
        chain = [single for layer in model.layers for single in rows.get(layer.name, [layer])]
        return keras.Sequential([keras.Input(tensor=model.inputs[0]), *chain], name=model.name)

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer.name not in rows:
            return layer(*args, **kwargs)
        (x,) = args
        for single in rows[layer.name]:
            x = single(x)
        return x

    return keras.models.clone_model(model, clone_function=lambda layer: layer, call_function=call)
