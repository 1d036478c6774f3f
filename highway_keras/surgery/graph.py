"""The layer graph of a functional or sequential model, and copies of it with some layers replaced."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras

# Name of a layer or operation, index of the call, index of the output.
Tensor = tuple[str, int, int]


def graph_of(model: keras.Model) -> keras.Model:
    """Returns the layers of a model as an uncompiled model, because not every loss and metric can be copied.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A functional model, or the sequential model itself.

    Raises:
        ValueError: if the model has no graph, because it is subclassed or an unbuilt sequential model.

    Example:
        graph_of(model).get_config()["layers"]
    """
    if not _has_graph(model):
        raise ValueError(
            "Only a functional model or a built sequential model can be converted. Build it, or convert the functional "
            f"models inside a subclassed one. Received: model={model}"
        )
    return model if isinstance(model, keras.Sequential) else keras.Model(model.input, model.output, name=model.name)


def calls(graph: keras.Model) -> Iterator[tuple[Any, int]]:
    """Yields each layer, with the number of its calls.

    Args:
        graph: the result of `graph_of`.

    Example:
        shared = [layer.name for layer, times in calls(graph) if times > 1]
    """
    if isinstance(graph, keras.Sequential):
        yield from ((layer, 1) for layer in graph.layers)
        return
    # The config lists exactly the calls of this model.
    nodes = {layer["name"]: layer["inbound_nodes"] for layer in graph.get_config()["layers"]}
    yield from ((layer, len(nodes[layer.name])) for layer in graph.layers)


def links(graph: keras.Model) -> Iterator[tuple[str, str]]:
    """Yields pairs of layers, each called once and with equal options, where only the second reads the first's output.

    Args:
        graph: the result of `graph_of`.

    Yields:
        The names of the first and the second layer.

    Example:
        dict(links(graph))["highway_01"]  # "highway_02"
    """
    if isinstance(graph, keras.Sequential):
        yield from itertools.pairwise(layer.name for layer in graph.layers)
        return
    # The config lists exactly the calls of this model, including those of operations.
    config = graph.get_config()
    calls = {layer["name"]: layer["inbound_nodes"] for layer in config["layers"]}
    readers = Counter(tensor for name in calls for call in calls[name] for tensor in _tensors(call))
    outputs = iter(keras.tree.flatten(config["output_layers"]))
    readers.update(zip(outputs, outputs, outputs, strict=True))
    for name, layer_calls in calls.items():
        read = [tensor for call in layer_calls for tensor in _tensors(call["args"][:1])]
        if len(layer_calls) != 1 or len(read) != 1 or readers[read[0]] != 1:
            continue
        producer = calls[read[0][0]]
        if len(producer) == 1 and _options(producer[0]) == _options(layer_calls[0]):
            yield read[0][0], name


def rewired(graph: keras.Model, rows: dict[str, list[Any]], inner: Callable[[keras.Model], keras.Model]) -> keras.Model:
    """Copies a model with its weights, replacing some layers by sequences of others.

    Args:
        graph: the result of `graph_of`.
        rows: layers that replace a layer, in sequence, by its name; an empty list removes it.
        inner: copies a nested model.

    Returns:
        An uncompiled model.

    Example:
        rewired(graph, {"highway": layers_of(stack)}, unstacked)
    """
    copies: list[tuple[Any, Any]] = []

    def copy(layer: Any) -> Any:
        if layer.name in rows:
            return layer  # Never called, see `call`.
        if _has_graph(layer):
            return inner(layer)
        copies.append((layer, type(layer).from_config(layer.get_config())))
        return copies[-1][1]

    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        if layer.name not in rows:
            return layer(*args, **kwargs)
        x, *others = args or (kwargs.pop("inputs"),)
        for single in rows[layer.name]:
            x = single(x, *others, **kwargs)
        return x

    if isinstance(graph, keras.Sequential):
        (first,) = graph.inputs
        first = keras.Input(batch_shape=first.shape, dtype=first.dtype, name=first.name)
        chain = [rows[layer.name] if layer.name in rows else [copy(layer)] for layer in graph.layers]
        copied = keras.Sequential([first, *itertools.chain(*chain)], name=graph.name)
    else:
        copied = keras.models.clone_model(graph, clone_function=copy, call_function=call)
    for layer, twin in copies:
        if isinstance(twin, keras.layers.Layer):
            twin.set_weights(layer.get_weights())
    return copied


def _has_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Model) and hasattr(layer, "inputs")


def _tensors(config: Any) -> Iterator[Tensor]:
    """Yields the tensors in a part of a config."""
    if isinstance(config, dict) and config.get("class_name") == "__keras_tensor__":
        yield tuple(config["config"]["keras_history"])
    elif isinstance(config, dict | list | tuple):
        for part in config.values() if isinstance(config, dict) else config:
            yield from _tensors(part)


def _options(call: dict[str, Any]) -> tuple[Any, Any]:
    """Returns the arguments of a call other than its input; Keras may or may not list a mask of None."""
    return call["args"][1:], {name: value for name, value in call["kwargs"].items() if value is not None}
