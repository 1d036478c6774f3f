"""Scores of a model on each example, and their masked, weighted sums."""

from collections.abc import Callable
from typing import Any

import keras
from keras import losses, ops

from highway_keras.layers.base import expand_mask

Scores = Callable[[Any, Any], dict[str, Any]]
"""Maps y and the model's outputs, tensors of one batch, to scores by name, each `[batch]` or `[batch, steps]`. Scores
are averaged later. Must use `keras.ops`, as it becomes part of a compiled program. One of the scores is "loss"."""


def classification(y: Any, outputs: Any) -> dict[str, Any]:
    """Computes the cross-entropy of logits in nats ("loss") and whether the largest logit is correct ("accuracy").

    Args:
        y: class numbers `[batch]` or `[batch, 1]`, or one-hot labels or probabilities `[batch, classes]`; for token
            outputs with an axis of steps after the batch.
        outputs: logits `[batch, classes]` or `[batch, steps, classes]`. A last axis of length 1 holds the logit of
            class 1 of two classes.

    Returns:
        "loss" and "accuracy", float32 `[batch]` or `[batch, steps]`.

    Example:
        lesion_layers(model, batches, scores=classification)
    """
    return _scores(y, outputs, from_logits=True)


def probabilities(y: Any, outputs: Any) -> dict[str, Any]:
    """Computes the scores of `classification` from probabilities, the outputs of a softmax or sigmoid.

    Args:
        y: see `classification`.
        outputs: probabilities, shaped as in `classification`; clipped to at least `keras.config.epsilon()`.

    Returns:
        See `classification`.

    Example:
        lesion_layers(model, batches, scores=probabilities)
    """
    return _scores(y, outputs, from_logits=False)


def regression(y: Any, outputs: Any) -> dict[str, Any]:
    """Computes the squared error, averaged over the outputs ("loss").

    Args:
        y: targets `[batch, outputs]`; for a single output also `[batch]`.
        outputs: outputs of the model, `[batch, outputs]`.

    Returns:
        "loss", float32 `[batch]`, in squared units of the targets.

    Raises:
        ValueError: if targets and outputs differ in shape.

    Example:
        lesion_layers(model, batches, scores=regression)
    """
    y, outputs = match_shapes(ops.cast(y, "float32"), ops.cast(outputs, "float32"))
    return {"loss": losses.mean_squared_error(y, outputs)}


def match_shapes(y: Any, outputs: Any) -> tuple[Any, Any]:
    """Brings targets and outputs to the same shape, if one of them lacks a last axis of length 1.

    Raises:
        ValueError: if they differ otherwise. Keras would broadcast them.
    """
    y, outputs = match_ranks(y, outputs)
    unequal = any(None not in sizes and sizes[0] != sizes[1] for sizes in zip(y.shape, outputs.shape, strict=False))
    if unequal or len(y.shape) != len(outputs.shape):
        raise ValueError(
            "Targets must have the shape of the outputs. "
            f"Received: y of shape {tuple(y.shape)}, outputs of shape {tuple(outputs.shape)}"
        )
    return y, outputs


def match_ranks(y: Any, outputs: Any) -> tuple[Any, Any]:
    """Appends a last axis of length 1 to targets or outputs, whichever lacks it."""
    if len(y.shape) + 1 == len(outputs.shape) and outputs.shape[-1] == 1:
        y = ops.expand_dims(y, -1)
    elif len(outputs.shape) + 1 == len(y.shape) and y.shape[-1] == 1:
        outputs = ops.expand_dims(outputs, -1)
    return y, outputs


def example_sums(scores: Any, mask: Any = None, weights: Any = None) -> Any:
    """Sums the scores of each example over its steps.

    The mean score is the total of these sums divided by the total for `ones_like(scores)`.

    Args:
        scores: `[batch]`, `[batch, steps]`, or with more axes of positions.
        mask: mask of the outputs; read only if there are steps.
        weights: `[batch]`, `[batch, 1]` or of the shape of `scores`; None weighs all equally.

    Returns:
        `[batch]`.

    Raises:
        ValueError: if the weights do not fit the scores.
    """
    rank = len(scores.shape)
    if mask is not None and 1 < len(mask.shape) <= rank:
        scores = ops.where(expand_mask(mask, rank), scores, ops.zeros_like(scores))
    if weights is not None:
        if len(weights.shape) == rank + 1 and weights.shape[-1] == 1:
            weights = ops.squeeze(weights, -1)
        if len(weights.shape) > rank:
            raise ValueError(
                "Weights must be per example, [batch], or per step, of the shape of the scores. "
                f"Received: weights of shape {tuple(weights.shape)} for scores of shape {tuple(scores.shape)}"
            )
        scores = scores * ops.reshape(weights, (*ops.shape(weights), *[1] * (rank - len(weights.shape))))
    return ops.sum(scores, axis=tuple(range(1, rank))) if rank > 1 else scores


def output_mask(outputs: Any) -> Any:
    """Returns the mask of a model's outputs, `[batch, steps]`; None if there is none, or there are several outputs."""
    return _MaskReader()(outputs) if hasattr(outputs, "shape") else None


class _MaskReader(keras.layers.Layer):
    """Returns the mask that Keras attaches to a tensor."""

    def __init__(self) -> None:
        super().__init__(autocast=False, name="mask")
        self.supports_masking = True

    def call(self, inputs: Any, mask: Any = None) -> Any:
        del inputs
        return mask


def _scores(y: Any, outputs: Any, from_logits: bool) -> dict[str, Any]:
    outputs = ops.cast(outputs, "float32")
    if len(outputs.shape) == 1:
        outputs = ops.expand_dims(outputs, -1)
    if outputs.shape[-1] == 1:
        return _binary_scores(y, outputs, from_logits)
    if len(y.shape) == len(outputs.shape) and y.shape[-1] == 1:
        y = ops.squeeze(y, -1)
    if len(y.shape) == len(outputs.shape):
        classes = ops.argmax(y, axis=-1)
        loss = losses.categorical_crossentropy(ops.cast(y, "float32"), outputs, from_logits=from_logits)
    else:
        classes = y
        loss = losses.sparse_categorical_crossentropy(ops.cast(y, "int32"), outputs, from_logits=from_logits)
    correct = ops.equal(ops.cast(ops.argmax(outputs, axis=-1), "int32"), ops.cast(classes, "int32"))
    return {"loss": loss, "accuracy": ops.cast(correct, "float32")}


def _binary_scores(y: Any, outputs: Any, from_logits: bool) -> dict[str, Any]:
    y, outputs = match_shapes(ops.cast(y, "float32"), outputs)
    correct = ops.equal(outputs > (0.0 if from_logits else 0.5), y > 0.5)
    return {
        "loss": losses.binary_crossentropy(y, outputs, from_logits=from_logits),
        "accuracy": ops.mean(ops.cast(correct, "float32"), axis=-1),
    }
