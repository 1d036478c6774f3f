"""Conversion between stacks and equivalent single layers, with their weights."""

from collections.abc import Iterator, Sequence
from typing import Any

import keras
import numpy as np

from highway_keras.layers import Highway, HighwayStack
from highway_keras.layers.highway_stack import UNSTACKED, has_variables
from highway_keras.layers.recording import layer_names
from highway_keras.surgery.graph import graph_of, links, rewired

# Keras builds, saves and loads chains of layers recursively, and Python's recursion limit is 1,000 levels.
MAX_CHAIN = 400


def unstacked(model: keras.Model) -> keras.Model:
    """Copies a model, converting every `HighwayStack` to a sequence of `Highway` layers.

    Nested models are converted too. Stacks inside other layers or subclassed models stay as they are.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        An uncompiled model that computes the same from copies of the weights. Layers are named after their stack, with
        a number; the layers of a shared stack are shared.

    Raises:
        ValueError: if the model has no graph, or the stacks have too many layers for Keras to chain, are quantized or
            have LoRA.

    Example:
        unstacked(model).get_layer("highway_stack_07").transform_bias
    """
    graph = graph_of(model)
    stacks = [layer for layer in graph.layers if type(layer) is HighwayStack]
    if sum(stack.depth for stack in stacks) > MAX_CHAIN:
        received = ", ".join(f"'{stack.name}' with depth={stack.depth}" for stack in stacks)
        raise ValueError(
            f"Keras can chain at most about {MAX_CHAIN} layers; stacks have no such limit. Received: {received}"
        )
    return rewired(graph, {stack.name: layers_of(stack) for stack in stacks}, unstacked)


def stacked(model: keras.Model) -> keras.Model:
    """Copies a model, converting every sequence of equal `Highway` layers to a `HighwayStack`.

    A sequence is two or more layers, each the only reader of the one before it, with arguments that differ in names,
    seeds and initial biases at most. Layers with a separate carry gate, batch normalization, dropout, an activity
    regularizer, int8 kernels, LoRA or an activation with variables stay single, as do layers that are called more than
    once. Nested models are converted too.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        An uncompiled model that computes the same from copies of the weights. A stack is named after its first layer.

    Raises:
        ValueError: if the model has no graph, because it is subclassed or an unbuilt sequential model.

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
    """Returns the layers of a built stack one by one, with copies of its weights.

    Args:
        stack: a built stack.

    Returns:
        `stack.depth` built layers, named after the stack and numbered from 1.

    Example:
        first, *others = layers_of(stack)
    """
    _refuse_adapted(stack)
    config = stack.get_config()
    del config["rematerialize"]
    config["depth"] = None
    if config["transform_bias"] == "auto":
        config["transform_bias"] = stack.initial_transform_bias
    arrays = [np.asarray(array) for array in stack.get_weights()]
    layers = []
    for name, weights in zip(layer_names(stack.name, stack.depth), zip(*arrays, strict=True), strict=True):
        layer = Highway.from_config({**config, "name": name})
        _build_like(layer, stack)
        layer.set_weights(weights)
        layers.append(layer)
    return layers


def stack_of(layers: Sequence[Highway], name: str | None = None) -> HighwayStack:
    """Returns a stack with copies of the weights of built layers.

    Args:
        layers: layers of one size, with arguments that differ in names, seeds and initial biases at most.
        name: name of the stack; None uses the first layer's.

    Returns:
        A built stack with one layer for each of the given ones.

    Raises:
        ValueError: if the layers differ, or have a feature that stacks lack.

    Example:
        stack_of([model.get_layer("highway"), model.get_layer("highway_1")])
    """
    first = layers[0]
    for layer in layers:
        if not _stackable(layer) or _shared(layer) != _shared(first):
            raise ValueError(
                f"The layers of a stack must have the same arguments, and no {', '.join(UNSTACKED)} or activation with "
                "variables. "
                f"Received: '{first.name}' with {_shared(first)} and '{layer.name}' with {_shared(layer)}"
            )
    config = {key: value for key, value in first.get_config().items() if key not in UNSTACKED}
    config |= {"name": name or first.name, "depth": len(layers)}
    biases = [layer.initial_transform_bias for layer in layers]
    if np.all(np.isfinite(biases)):
        config["transform_bias"] = float(np.mean(biases))
    stack = HighwayStack.from_config(config)
    _build_like(stack, first)
    stack.set_weights([np.stack(arrays) for arrays in zip(*(layer.get_weights() for layer in layers), strict=True)])
    return stack


def part_of(stack: HighwayStack, places: Sequence[int]) -> HighwayStack:
    """Returns a stack of some layers of a built stack, with copies of their weights.

    Args:
        stack: a built stack.
        places: indices of the layers, from 0.

    Returns:
        A built stack of the same name.

    Raises:
        ValueError: if the stack is quantized or has LoRA.

    Example:
        part_of(stack, [0, 2])  # without its second layer
    """
    _refuse_adapted(stack)
    config = {**stack.get_config(), "depth": len(places)}
    if config["transform_bias"] == "auto":
        config["transform_bias"] = stack.initial_transform_bias
    part = HighwayStack.from_config(config)
    _build_like(part, stack)
    part.set_weights([np.asarray(array)[list(places)] for array in stack.get_weights()])
    return part


def _refuse_adapted(stack: HighwayStack) -> None:
    if _is_adapted(stack):
        raise ValueError(
            "A stack that is quantized or has LoRA cannot be converted: convert the model first. "
            f"Received: stack '{stack.name}'"
        )


def _build_like(layer: Any, other: Any) -> None:
    """Builds a layer for inputs of the rank and size of another layer."""
    layer.build((None,) * (other.input_spec.ndim - 1) + (other.kernel.shape[-1],))


def _rows(graph: keras.Model) -> Iterator[list[Highway]]:
    """Yields the sequences of layers that can be stacked."""
    layers = {layer.name: layer for layer in graph.layers if _stackable(layer)}
    previous = {
        second: first
        for first, second in links(graph)
        if first in layers and second in layers and _shared(layers[first]) == _shared(layers[second])
    }
    followed = set(previous.values())
    for last in (name for name in previous if name not in followed):
        names = [last]
        while names[0] in previous:
            names.insert(0, previous[names[0]])
        yield [layers[name] for name in names]


def _stackable(layer: Any) -> bool:
    return (
        type(layer) is Highway
        and all(getattr(layer, name) == value for name, value in UNSTACKED.items())
        and not has_variables(layer.activation)
        and not _is_adapted(layer)
    )


def _is_adapted(layer: Any) -> bool:
    return layer.lora_enabled or layer.quantization_mode is not None


def _shared(layer: Highway) -> Any:
    """Returns the arguments that the layers of a stack must share."""
    config = layer.get_config()
    return _seedless({name: value for name, value in config.items() if name not in ("name", "depth", "transform_bias")})


def _seedless(config: Any) -> Any:
    """Removes all seeds from a config: the layers already have weights."""
    if not isinstance(config, dict):
        return config
    return {name: _seedless(value) for name, value in config.items() if name != "seed"}
