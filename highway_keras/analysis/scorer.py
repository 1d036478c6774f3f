"""The choice of scores for a model: as requested, or inferred from the activation of its last layer."""

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import activations, layers, losses, ops

from highway_keras.analysis.labels import check_labels
from highway_keras.analysis.scores import Scores, classification, match_ranks, match_shapes, probabilities

ScoreSpec: TypeAlias = Scores | losses.Loss | Literal["compiled"] | None
"""The `scores` argument of analyses:

- None: cross-entropy and accuracy of a classifier. The activation of the last layer of a functional or sequential model
  determines whether its outputs are logits or probabilities; for other models, `from_logits` of the cross-entropy they
  are compiled with. Several sigmoids are independent binary classifiers, with y of the shape of the outputs. Ambiguous
  models raise an error.
- `classification` for logits, `probabilities`, or `regression` for the squared error.
- A Keras loss, such as `keras.losses.BinaryCrossentropy(from_logits=True)`, with y as it expects it; cross-entropies
  add the accuracy. Examples and steps of its `ignore_class` do not count.
- "compiled": the loss the model is compiled with.
- A function of y and the outputs that returns scores by name, or the loss of each example.
"""
OutputKind = Literal["linear", "softmax", "sigmoid"]

# Loss functions take probabilities by default.
LOSSES: dict[Any, losses.Loss] = {
    losses.binary_crossentropy: losses.BinaryCrossentropy(),
    losses.categorical_crossentropy: losses.CategoricalCrossentropy(),
    losses.sparse_categorical_crossentropy: losses.SparseCategoricalCrossentropy(),
}
RESHAPING = (layers.Flatten, layers.Reshape)
# These keep logits and probabilities as they are, unless a reshape mixes classes with positions.
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
OUTPUT_KINDS: dict[Any, OutputKind] = {
    activations.linear: "linear",
    activations.log_softmax: "linear",  # The softmax of log-probabilities gives the probabilities.
    activations.softmax: "softmax",
    activations.sigmoid: "sigmoid",
}
CHOICES = (
    "pass scores=highway_keras.analysis.classification for logits, highway_keras.analysis.probabilities, "
    "highway_keras.analysis.regression, a Keras loss, 'compiled' for the loss of a compiled model, or a function"
)


class Scorer(NamedTuple):
    """The scores of a model and the matching preparation of its labels."""

    scores: Scores
    labels: Callable[[Any], Any]
    """Converts y to the form `scores` expects; raises ValueError if y does not fit the outputs."""
    counted: Callable[[Any, Any], Any] = lambda _, values: ops.ones_like(values, "float32")
    """Maps y and the values of a score to 1 where they count in its mean, else 0; `scores` are 0 there."""


def scorer(model: keras.Model, outputs: Any, scores: ScoreSpec = None) -> Scorer:
    """Returns the requested scores, or those that suit a model.

    Args:
        model: the model to score.
        outputs: its outputs, or their `keras.KerasTensor`s; only shapes are read.
        scores: see `ScoreSpec`.

    Raises:
        ValueError: if the outputs do not match the requested scores, or their kind is ambiguous.
    """
    spec: Any = scores
    loss = spec if isinstance(spec, losses.Loss) else LOSSES.get(spec)
    if isinstance(spec, str):
        loss = _compiled_loss(model) if spec == "compiled" else None
        if loss is None:
            raise ValueError(
                "The only string for `scores` is 'compiled', for a model compiled with a single loss. "
                f"Received: scores={spec!r}, model.loss={getattr(model, 'loss', None)!r}"
            )
    if loss is None and spec not in (None, classification, probabilities):
        return Scorer(_detached(_matched(spec)), lambda y: y)
    if not hasattr(outputs, "shape"):
        raise ValueError(
            "A model with several outputs needs custom scores: pass a function of y and the outputs. "
            f"Received: {len(keras.tree.flatten(outputs))} outputs"
        )
    shape = tuple(outputs.shape)
    if loss is not None:
        return _loss_scorer(loss, shape)
    kind = output_kind(model)
    if spec is None and kind == "sigmoid" and len(shape) > 1 and shape[-1] != 1:
        return _loss_scorer(losses.BinaryCrossentropy(), shape)
    if spec is not None and kind is not None and (spec is classification) != (kind == "linear"):
        returned = "logits" if kind == "linear" else f"probabilities, from a {kind}"
        raise ValueError(f"The model returns {returned}: leave `scores` out. Received: scores={spec.__name__}")
    return Scorer(_detached(spec or _infer_scores(model, kind)), lambda y: check_labels(y, shape))


def _infer_scores(model: keras.Model, kind: OutputKind | None) -> Scores:
    loss = _compiled_loss(model)
    from_logits = None if loss is None else _from_logits(loss)
    if kind is None and from_logits is not None:
        return classification if from_logits else probabilities
    if kind is None or (loss is not None and from_logits is None):
        reason = f"its loss, {loss}, is not a cross-entropy" if kind else "the activation of its last layer is unknown"
        raise ValueError(
            f"Cannot determine whether the model {model.name!r} returns logits or class probabilities, because "
            f"{reason}: {CHOICES}."
        )
    return classification if kind == "linear" else probabilities


def _compiled_loss(model: keras.Model) -> Any:
    """Returns the loss a model is compiled with, a function or a `keras.losses.Loss`; None unless there is just one."""
    loss = getattr(model, "loss", None)
    if loss is None or isinstance(loss, dict | list | tuple):
        return None
    function = losses.get(loss)
    return LOSSES.get(function, function)


def _from_logits(loss: Any) -> bool | None:
    """Returns whether a cross-entropy takes logits; None for other losses."""
    return loss.get_config().get("from_logits") if isinstance(loss, losses.Loss) else None


def _loss_scorer(loss: Any, shape: tuple[int | None, ...]) -> Scorer:
    example_loss = loss.call if isinstance(loss, losses.Loss) else loss
    sparse = isinstance(loss, losses.SparseCategoricalCrossentropy)
    binary = isinstance(loss, losses.BinaryCrossentropy)

    def scores(y: Any, outputs: Any) -> dict[str, Any]:
        targets, outputs = ops.cast(y, "float32"), ops.cast(outputs, "float32")
        if not sparse:
            targets, outputs = (match_shapes if binary else match_ranks)(targets, outputs)
        found = {"loss": example_loss(targets, outputs)}
        if binary:
            correct = ops.equal(outputs > (0.0 if _from_logits(loss) else 0.5), targets > 0.5)
            found["accuracy"] = ops.mean(ops.cast(correct, "float32"), axis=-1)
        elif sparse or isinstance(loss, losses.CategoricalCrossentropy):
            found["accuracy"] = classification(y, outputs)["accuracy"]
        return found

    def labels(y: Any) -> Any:
        if binary and not np.all((np.asarray(y) >= 0) & (np.asarray(y) <= 1)):
            raise ValueError("Binary labels must be from 0 to 1.")
        return check_labels(y, shape) if sparse else y

    chosen = Scorer(_detached(scores), labels)
    return chosen if not sparse or loss.ignore_class is None else _ignoring(loss.ignore_class, chosen.scores, shape)


def _ignoring(ignored: int, scores: Scores, shape: tuple[int | None, ...]) -> Scorer:
    """Leaves out the examples and steps of a class, which the model need not have, such as -1 or 255."""

    def counted(y: Any, _: Any) -> Any:
        return ops.cast(ops.not_equal(y, ignored), "float32")

    def without(y: Any, outputs: Any) -> dict[str, Any]:
        valid = ops.where(ops.equal(y, ignored), ops.zeros_like(y), y)
        return {name: values * counted(y, values) for name, values in scores(valid, outputs).items()}

    return Scorer(without, lambda y: check_labels(y, shape, ignored), counted)


def _matched(scores: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Wraps a function so that targets and outputs have the same rank, as in Keras.

    `[batch]` and `[batch, 1]` would be broadcast to `[batch, batch]`, whose means are plausible scores.
    """

    def matched(y: Any, outputs: Any) -> Any:
        if not (hasattr(y, "shape") and hasattr(outputs, "shape")):
            return scores(y, outputs)
        y, outputs = match_ranks(y, outputs)
        found = scores(y, outputs)
        for values in (found if isinstance(found, dict) else {"": found}).values():
            if tuple(outputs.shape[1:]) == (1,) and len(values.shape) > 1 and values.shape[1] != 1:
                raise ValueError(
                    "Scores of a model with one output must be [batch] or [batch, 1]: targets and outputs, both "
                    f"[batch, 1], were broadcast. Received: scores of shape {tuple(values.shape)}"
                )
        return found

    return matched


def _detached(scores: Callable[[Any, Any], Any]) -> Scores:
    """Wraps scores so that they receive copies of the outputs, and names a bare loss "loss".

    Without copies, Keras's losses on TensorFlow would find the logits behind a softmax or sigmoid and use them whatever
    `from_logits` is.
    """

    def detached(y: Any, outputs: Any) -> dict[str, Any]:
        found = scores(y, keras.tree.map_structure(ops.copy, outputs))
        found = found if isinstance(found, dict) else {"loss": found}
        if "loss" not in found or not all(len(values.shape) for values in found.values()):
            raise ValueError(
                "Scores must be per example, [batch] or [batch, steps], and one of them must be named 'loss'. "
                f"Received: { {name: tuple(values.shape) for name, values in found.items()} }"
            )
        return found

    return detached


def output_kind(model: keras.Model) -> OutputKind | None:
    """Finds the activation of a model's last layer.

    Args:
        model: a functional or sequential model with one output; for other models the result is None.

    Returns:
        "linear", "softmax" or "sigmoid"; None if unknown.

    Example:
        >>> output_kind(keras.Sequential([keras.Input((4,)), keras.layers.Dense(3, activation="softmax")]))
        'softmax'
    """
    mixed = False
    for layer in _backwards(model):
        if isinstance(layer, PASSING) or (
            isinstance(layer, layers.Activation) and layer.activation is activations.linear
        ):
            mixed = mixed or (isinstance(layer, RESHAPING) and not _keeps_width(layer))
            continue
        kind = _layer_kind(layer)
        return None if kind == "softmax" and mixed else kind
    return None


def _layer_kind(layer: Any) -> OutputKind | None:
    if isinstance(layer, layers.TimeDistributed):
        return _layer_kind(layer.layer)
    if isinstance(layer, keras.Model):
        return output_kind(layer)
    if isinstance(layer, layers.Softmax):
        return "softmax" if layer.axis == -1 else None
    return OUTPUT_KINDS.get(layer.activation) if isinstance(layer, ACTIVATED) else None


def _keeps_width(layer: Any) -> bool:
    try:
        return bool(layer.input.shape[-1] == layer.output.shape[-1])
    except (AttributeError, ValueError):  # The layer was called several times, so the call is ambiguous.
        return False


def _backwards(model: keras.Model) -> Iterator[Any]:
    """Yields the layers of a model from the last one back along the graph, as far as it is known."""
    if isinstance(model, keras.Sequential):
        yield from reversed(model.layers)
        return
    outputs = list(getattr(model, "outputs", []))  # A subclassed model has no graph.
    layer = _producer(model, outputs[0]) if len(outputs) == 1 else None
    while layer is not None:
        yield layer
        layer = _producer(model, layer.input)


def _producer(model: keras.Model, tensor: Any) -> Any:
    """Returns the layer of a model whose only call produced a tensor, if there is one."""
    for layer in reversed(model.layers):
        try:
            if layer.output is tensor:
                return layer
        except (AttributeError, ValueError):  # The layer was called several times, or never on its own.
            continue
    return None
