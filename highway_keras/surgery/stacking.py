"""Between a stack and the layers that it stands for, weights and all."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from highway_keras.layers import Highway, HighwayStack
from highway_keras.layers.highway_stack import UNSTACKED, has_variables
from highway_keras.layers.recording import layer_names
from highway_keras.surgery.graph import graph_of, links, rewired

# Keras builds, saves and loads a chain of layers by recursion; Python gives up at 1 000 levels.
LONGEST = 400


def unstacked(model: keras.Model) -> keras.Model:
    """A copy of a model in which every `HighwayStack` is a row of `Highway` layers.

    Models inside the model are converted too. A stack inside of another layer or of a subclassed model stays.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A model that computes the same from copies of the weights, not compiled. The layers are named after their stack
        and numbered; those of a stack that is called twice are called twice.

    Raises:
        ValueError: if the layers of the stacks would be too many for Keras to chain.

    Example:
        unstacked(model).get_layer("highway_stack_07").transform_bias
    """
    graph = graph_of(model)
    stacks = [layer for layer in graph.layers if type(layer) is HighwayStack]
    if sum(stack.depth for stack in stacks) > LONGEST:
        received = ", ".join(f"'{stack.name}' with depth={stack.depth}" for stack in stacks)
        raise ValueError(
            f"Keras chains at most about {LONGEST} layers; a stack has no such limit. Received: {received}"
        )
    return rewired(graph, {stack.name: layers_of(stack) for stack in stacks}, unstacked)


def stacked(model: keras.Model) -> keras.Model:
    """A copy of a model in which every row of `Highway` layers that can be a `HighwayStack` is one.

    A row is two or more layers, each of which alone reads the one before it, with the same arguments but for names,
    seeds and initial biases. Layers with a separate carry gate, batch normalisation, dropout or an activation that has
    variables stay as they are, and so do layers that are called more than once. Models inside the model are converted
    too.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A model that computes the same from copies of the weights, not compiled. A stack bears the name of its first
        layer.

    Example:
        deep = stacked(model)
    """
    graph = graph_of(model)
    rows: dict[str, list[HighwayStack]] = {}
    for row in _rows(graph):
        rows |= {layer.name: [] for layer in row[:-1]}
        rows[row[-1].name] = [stack_of(row)]
    return rewired(graph, rows, stacked)


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
        _build_like(layer, stack)
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
                f"The layers of a stack have the same arguments, and no {', '.join(UNSTACKED)} or activation with "
                "variables. "
                f"Received: '{first.name}' with {_shared(first)} and '{layer.name}' with {_shared(layer)}"
            )
    config = {key: value for key, value in first.get_config().items() if key not in UNSTACKED}
    config |= {
        "name": name or first.name,
        "depth": len(layers),
        "transform_bias": float(np.mean([layer.initial_transform_bias for layer in layers])),
    }
    stack = HighwayStack.from_config(config)
    _build_like(stack, first)
    stack.set_weights([np.stack(arrays) for arrays in zip(*(layer.get_weights() for layer in layers), strict=True)])
    return stack


def _build_like(layer: Any, other: Any) -> None:
    """Builds a layer for inputs of the rank and size that the other was built for."""
    layer.build((None,) * (other.input_spec.ndim - 1) + (other.kernel.shape[-1],))


def _rows(graph: keras.Model) -> Iterator[list[Highway]]:
    """The rows of layers that can be stacked."""
    layers = {layer.name: layer for layer in graph.layers if _stackable(layer)}
    before = {
        second: first
        for first, second in links(graph)
        if first in layers and second in layers and _shared(layers[first]) == _shared(layers[second])
    }
    followed = set(before.values())
    for last in (name for name in before if name not in followed):
        names = [last]
        while names[0] in before:
            names.insert(0, before[names[0]])
        yield [layers[name] for name in names]


def _stackable(layer: Any) -> bool:
    return (
        type(layer) is Highway
        and all(getattr(layer, name) == value for name, value in UNSTACKED.items())
        and not has_variables(layer.activation)
    )


def _shared(layer: Highway) -> Any:
    """What the layers of one stack have in common."""
    config = layer.get_config()
    return _seedless({name: value for name, value in config.items() if name not in ("name", "depth", "transform_bias")})


def _seedless(config: Any) -> Any:
    """A config without seeds, its own and those of initialisers: the layers have their weights."""
    if not isinstance(config, dict):
        return config
    return {name: _seedless(value) for name, value in config.items() if name != "seed"}
