"""The graph of a functional or sequential model: who reads whom, and a copy with other layers in some places."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import keras

# Name of a layer or operation, number of the call, number of the output.
Tensor = tuple[str, int, int]


def graph_of(model: keras.Model) -> keras.Model:
    """The same layers in a model that is not compiled: not every loss and metric can be copied.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        A functional model, or the sequential model itself.

    Raises:
        ValueError: if the model has no graph: it is a subclassed one, or a sequential one that is not built.

    Example:
        graph_of(model).get_config()["layers"]
    """
    if not _has_graph(model):
        raise ValueError(
            "Only a functional model, or a sequential model that is built, has a graph that can be changed. Build it, "
            f"or pass the functional models inside a subclassed one. Received: model={model}"
        )
    return model if isinstance(model, keras.Sequential) else keras.Model(model.input, model.output, name=model.name)


def links(graph: keras.Model) -> Iterator[tuple[str, str]]:
    """Pairs of names of layers: both are called once, with the same options, and the second alone reads the first.

    Args:
        graph: from `graph_of`.

    Yields:
        The name of the layer that is read and that of its reader.

    Example:
        dict(links(graph))["highway_01"]  # "highway_02"
    """
    if isinstance(graph, keras.Sequential):
        yield from itertools.pairwise(layer.name for layer in graph.layers)
        return
    # The config has every call of this model, those of operations too, and none of another model.
    config = graph.get_config()
    calls = {layer["name"]: layer["inbound_nodes"] for layer in config["layers"]}
    readers = Counter(tensor for name in calls for call in calls[name] for tensor in _tensors(call))
    outputs = iter(keras.tree.flatten(config["output_layers"]))
    readers.update(zip(outputs, outputs, outputs, strict=True))
    for name, of_layer in calls.items():
        read = [tensor for call in of_layer for tensor in _tensors(call["args"][:1])]
        if len(of_layer) != 1 or len(read) != 1 or readers[read[0]] != 1:
            continue
        maker = calls[read[0][0]]
        if len(maker) == 1 and _options(maker[0]) == _options(of_layer[0]):
            yield read[0][0], name


def rewired(graph: keras.Model, rows: dict[str, list[Any]], inner: Callable[[keras.Model], keras.Model]) -> keras.Model:
    """A copy of a model, weights and all, with a row of other layers in the place of some.

    Args:
        graph: from `graph_of`.
        rows: name of a layer to the layers that stand in its place, one after another; none let its input through.
        inner: makes the copy of a model inside the model.

    Returns:
        A model that is not compiled.

    Example:
        rewired(graph, {"highway": layers_of(stack)}, unstacked)
    """
    copies: list[tuple[Any, Any]] = []

    def copy(layer: Any) -> Any:
        if layer.name in rows:
            return layer  # and `call` does not call it
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
        made = keras.Sequential([first, *itertools.chain(*chain)], name=graph.name)
    else:
        made = keras.models.clone_model(graph, clone_function=copy, call_function=call)
    for layer, twin in copies:
        if isinstance(twin, keras.layers.Layer):
            twin.set_weights(layer.get_weights())
    return made


def _has_graph(layer: Any) -> bool:
    return isinstance(layer, keras.Model) and hasattr(layer, "inputs")


def _tensors(config: Any) -> Iterator[Tensor]:
    """The tensors named in a part of a config."""
    if isinstance(config, dict) and config.get("class_name") == "__keras_tensor__":
        yield tuple(config["config"]["keras_history"])
    elif isinstance(config, dict | list | tuple):
        for part in config.values() if isinstance(config, dict) else config:
            yield from _tensors(part)


def _options(call: dict[str, Any]) -> tuple[Any, Any]:
    """What a layer is called with beside its input; Keras writes a mask of None or leaves it out."""
    return call["args"][1:], {name: value for name, value in call["kwargs"].items() if value is not None}
