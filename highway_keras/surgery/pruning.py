"""Removal of highway layers that a trained net can spare."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

import keras

from highway_keras.layers import HighwayStack
from highway_keras.layers.base import BaseHighway
from highway_keras.layers.recording import layer_names
from highway_keras.surgery.graph import calls, graph_of, rewired
from highway_keras.surgery.stacking import part_of


def pruned(model: keras.Model, layers: Iterable[str]) -> keras.Model:
    """Copies a model without some of its highway layers, whose inputs then pass through unchanged.

    The copy computes what the model computes with all gates of these layers closed, in less time.

    Args:
        model: a functional or sequential model with weights. Nested models are pruned too.
        layers: names of the layers, as in `highway_keras.analysis.highway_layers`; those of a stack are its own name
            and a number, such as `highway_stack_07`.

    Returns:
        An uncompiled model with copies of the weights. Layers keep their names, except that those of a stack are
        numbered anew.

    Raises:
        ValueError: if the model has no graph, a layer is not in it, shares its name with another or is called more than
            once, or a stack to be pruned is quantized or has LoRA.

    Example:
        found = highway_keras.analysis.lesion_greedily(model, batches)
        small = pruned(model, found.names(found.spared(0.001, "accuracy")))

    Reference:
        arXiv 1507.06228, section 4.2: closing a layer that is not needed hardly changes the error.
    """
    wanted = set(layers)
    once, several = _removable(graph_of(model))
    if shared := sorted(wanted & several):
        raise ValueError(
            "A layer that shares its name with another or is called more than once cannot be removed. "
            f"Received: {', '.join(shared)}"
        )
    if unknown := sorted(wanted - once):
        raise ValueError(
            f"These are not highway layers in the graph of the model: {', '.join(unknown)}. "
            f"Choose among: {', '.join(sorted(once)) or 'none'}"
        )
    return _without(model, wanted)


def _without(model: keras.Model, names: set[str]) -> keras.Model:
    graph = graph_of(model)
    rows: dict[str, list[Any]] = {}
    for layer in graph.layers:
        if isinstance(layer, HighwayStack):
            every = layer_names(layer.name, layer.depth)
            kept = [place for place, name in enumerate(every) if name not in names]
            if len(kept) < layer.depth:
                rows[layer.name] = [part_of(layer, kept)] if kept else []
        elif isinstance(layer, BaseHighway) and layer.name in names:
            rows[layer.name] = []
    return rewired(graph, rows, lambda inner: _without(inner, names))


def _removable(graph: keras.Model) -> tuple[set[str], set[str]]:
    """Returns the names of all highway layers that occur in one call, and those that occur in several."""
    counts = Counter[str]()
    for layer, times in calls(graph):
        names: Iterable[str] = ()
        if isinstance(layer, HighwayStack):
            names = layer_names(layer.name, layer.depth)
        elif isinstance(layer, BaseHighway):
            names = (layer.name,)
        elif isinstance(layer, keras.Model) and hasattr(layer, "inputs"):
            once, several = _removable(graph_of(layer))
            counts.update(dict.fromkeys(several, 2))
            names = once
        for name in names:
            counts[name] += times
    return {name for name in counts if counts[name] == 1}, {name for name in counts if counts[name] > 1}
