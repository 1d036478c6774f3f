"""How well a model does on each example: what lesions are measured by."""

from collections.abc import Callable
from typing import Any

from keras import losses, ops

Scores = Callable[[Any, Any], dict[str, Any]]
"""From y and the model's outputs, tensors of one batch, to numbers by name, `[batch]` each, of which means are taken.
Written in `keras.ops`, as it becomes part of a compiled program. One of them is "loss"."""


def classification(y: Any, outputs: Any) -> dict[str, Any]:
    """Cross-entropy of logits in nats ("loss"), and whether the largest is that of the class ("accuracy").

    Args:
        y: class numbers `[batch]`, or one-hot `[batch, classes]`.
        outputs: logits `[batch, classes]`.
    """
    outputs = ops.cast(outputs, "float32")
    classes = ops.cast(ops.argmax(y, axis=-1) if len(y.shape) == 2 else y, "int32")
    return {
        "loss": losses.sparse_categorical_crossentropy(classes, outputs, from_logits=True),
        "accuracy": ops.cast(ops.equal(ops.cast(ops.argmax(outputs, axis=-1), "int32"), classes), "float32"),
    }


def regression(y: Any, outputs: Any) -> dict[str, Any]:
    """The squared error, mean over the outputs ("loss").

    Args:
        y: targets `[batch, outputs]`.
        outputs: of the model, of the same shape.
    """
    return {"loss": losses.mean_squared_error(ops.cast(y, "float32"), ops.cast(outputs, "float32"))}
