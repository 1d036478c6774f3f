"""How well a model does on each example: what lesions are measured by."""

from collections.abc import Callable
from typing import Any

from keras import losses, ops

Scores = Callable[[Any, Any], dict[str, Any]]
"""From y and the model's outputs, tensors of one batch, to numbers by name, of which means are taken: `[batch]` or
`[batch, steps]` each. Written in `keras.ops`, as it becomes part of a compiled program. One of them is "loss"."""


def classification(y: Any, outputs: Any) -> dict[str, Any]:
    """Cross-entropy of logits in nats ("loss"), and whether the largest is that of the class ("accuracy").

    Args:
        y: class numbers `[batch]` or `[batch, 1]`, or one-hot or probabilities `[batch, classes]`; for token outputs
            with an axis of steps after the first.
        outputs: logits `[batch, classes]` or `[batch, steps, classes]`. A last axis of length 1 holds the logit of
            class 1 of the two classes 0 and 1.

    Example:
        lesion_layers(model, batches, scores=classification)
    """
    return _scores(y, outputs, from_logits=True)


def probabilities(y: Any, outputs: Any) -> dict[str, Any]:
    """The scores of `classification` for a model that gives probabilities, as a softmax or sigmoid does.

    Args:
        y: see `classification`.
        outputs: probabilities, of the shapes of `classification`. Below `keras.config.epsilon()` they count as that.

    Example:
        lesion_layers(model, batches, scores=probabilities)
    """
    return _scores(y, outputs, from_logits=False)


def regression(y: Any, outputs: Any) -> dict[str, Any]:
    """The squared error, mean over the outputs ("loss").

    Args:
        y: targets `[batch, outputs]`; for a single output also `[batch]`.
        outputs: of the model, `[batch, outputs]`.

    Raises:
        ValueError: if targets and outputs differ in shape.
    """
    y, outputs = aligned(ops.cast(y, "float32"), ops.cast(outputs, "float32"))
    return {"loss": losses.mean_squared_error(y, outputs)}


def aligned(y: Any, outputs: Any) -> tuple[Any, Any]:
    """Targets and outputs of one shape: one of the two may lack a last axis of length 1.

    Raises:
        ValueError: if they differ in another way. Keras would repeat the smaller along the larger.
    """
    y, outputs = of_one_rank(y, outputs)
    unequal = any(None not in sizes and sizes[0] != sizes[1] for sizes in zip(y.shape, outputs.shape, strict=False))
    if unequal or len(y.shape) != len(outputs.shape):
        raise ValueError(
            "Targets must have the shape of the outputs. "
            f"Received: y of shape {tuple(y.shape)}, outputs of shape {tuple(outputs.shape)}"
        )
    return y, outputs


def of_one_rank(y: Any, outputs: Any) -> tuple[Any, Any]:
    """Targets and outputs, a last axis of length 1 added to the one that lacks it."""
    if len(y.shape) + 1 == len(outputs.shape) and outputs.shape[-1] == 1:
        y = ops.expand_dims(y, -1)
    elif len(outputs.shape) + 1 == len(y.shape) and y.shape[-1] == 1:
        outputs = ops.expand_dims(outputs, -1)
    return y, outputs


def _scores(y: Any, outputs: Any, from_logits: bool) -> dict[str, Any]:
    outputs = ops.cast(outputs, "float32")
    if len(outputs.shape) == 1:
        outputs = ops.expand_dims(outputs, -1)
    if outputs.shape[-1] == 1:
        return _of_two(y, outputs, from_logits)
    if len(y.shape) == len(outputs.shape) and y.shape[-1] == 1:
        y = ops.squeeze(y, -1)
    if len(y.shape) == len(outputs.shape):
        classes = ops.argmax(y, axis=-1)
        loss = losses.categorical_crossentropy(ops.cast(y, "float32"), outputs, from_logits=from_logits)
    else:
        classes = y
        loss = losses.sparse_categorical_crossentropy(ops.cast(y, "int32"), outputs, from_logits=from_logits)
    right = ops.equal(ops.cast(ops.argmax(outputs, axis=-1), "int32"), ops.cast(classes, "int32"))
    return {"loss": loss, "accuracy": ops.cast(right, "float32")}


def _of_two(y: Any, outputs: Any, from_logits: bool) -> dict[str, Any]:
    y, outputs = aligned(ops.cast(y, "float32"), outputs)
    right = ops.equal(outputs > (0.0 if from_logits else 0.5), y > 0.5)
    return {
        "loss": losses.binary_crossentropy(y, outputs, from_logits=from_logits),
        "accuracy": ops.mean(ops.cast(right, "float32"), axis=-1),
    }
