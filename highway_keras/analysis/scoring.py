"""Which scores suit a model: asked for, or recognised from what its outputs are."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, TypeAlias

import keras
import numpy as np
from keras import losses, ops

from highway_keras.analysis.heads import kind
from highway_keras.analysis.labels import checked
from highway_keras.analysis.scores import Scores, aligned, classification, of_one_rank, probabilities

Asked: TypeAlias = Scores | losses.Loss | Literal["compiled"] | None
"""What is measured:

- None: cross-entropy and accuracy of a classifier. The activation of the last layer of a functional or sequential model
  says whether its outputs are logits or probabilities; of another model, `from_logits` of the cross-entropy that it is
  compiled with. Several sigmoids answer as many questions with yes or no, and y has the shape of the outputs. An error
  where it cannot be told.
- `classification` for logits, `probabilities`, or `regression`: the squared error, for targets that are no classes.
- A Keras loss, such as `keras.losses.BinaryCrossentropy(from_logits=True)`, with y as it takes it; of a cross-entropy
  the accuracy, too.
- "compiled": the loss that the model is compiled with.
- A function from y and the outputs to scores by name, or to the loss of each example.
"""
# Functions of cross-entropy take probabilities if not told otherwise.
FUNCTIONS: dict[Any, losses.Loss] = {
    losses.binary_crossentropy: losses.BinaryCrossentropy(),
    losses.categorical_crossentropy: losses.CategoricalCrossentropy(),
    losses.sparse_categorical_crossentropy: losses.SparseCategoricalCrossentropy(),
}
CHOICES = (
    "pass scores=highway_keras.analysis.classification for logits, highway_keras.analysis.probabilities, "
    "highway_keras.analysis.regression, a Keras loss, 'compiled' for the loss of a compiled model, or a function"
)


class Scorer(NamedTuple):
    """What is measured of one model, and the form of its labels."""

    scores: Scores
    labels: Callable[[Any], Any]
    """From y to y as `scores` takes it; raises ValueError if labels do not fit the outputs."""


def scorer(model: keras.Model, outputs: Any, scores: Asked = None) -> Scorer:
    """The scores that are asked for, or that suit a model.

    Args:
        model: what is measured.
        outputs: of the model, or their `keras.KerasTensor`s: shapes are read.
        scores: see `Asked`.

    Raises:
        ValueError: if the outputs are not of the kind that is asked for, or of a kind that cannot be told.
    """
    asked: Any = scores
    loss = asked if isinstance(asked, losses.Loss) else FUNCTIONS.get(asked)
    if isinstance(asked, str):
        loss = _compiled(model) if asked == "compiled" else None
        if loss is None:
            raise ValueError(
                "The one word for `scores` is 'compiled', of a model that is compiled with one loss. "
                f"Received: model.loss={getattr(model, 'loss', None)!r}"
            )
    if loss is None and asked not in (None, classification, probabilities):
        return Scorer(_of_copies(asked), lambda y: y)
    if not hasattr(outputs, "shape"):
        raise ValueError(
            "A model of several outputs needs scores of its own: pass a function from y and the outputs. "
            f"Received: {len(keras.tree.flatten(outputs))} outputs"
        )
    shape = tuple(outputs.shape)
    if loss is not None:
        return _of_loss(loss, shape)
    head = kind(model)
    if asked is None and head == "sigmoid" and len(shape) > 1 and shape[-1] != 1:
        return _of_loss(losses.BinaryCrossentropy(), shape)
    if asked is not None and head is not None and (asked is classification) != (head == "linear"):
        given = "logits" if head == "linear" else f"probabilities, from a {head}"
        raise ValueError(f"The model gives {given}: leave `scores` out. Received: scores={asked.__name__}")
    return Scorer(_of_copies(asked or _recognized(model, head)), lambda y: checked(y, shape))


def _recognized(model: keras.Model, head: str | None) -> Scores:
    loss = _compiled(model)
    from_logits = None if loss is None else _from_logits(loss)
    if head is None and from_logits is not None:
        return classification if from_logits else probabilities
    if head is None or (loss is not None and from_logits is None):
        why = f"its loss, {loss}, is no cross-entropy" if head else "the activation of its last layer is not known"
        raise ValueError(
            f"It cannot be told whether the model {model.name!r} gives logits or probabilities of classes, as {why}: "
            f"{CHOICES}."
        )
    return classification if head == "linear" else probabilities


def _compiled(model: keras.Model) -> Any:
    """The loss that a model is compiled with: a function or a `keras.losses.Loss`; None if there is not just one."""
    loss = getattr(model, "loss", None)
    if loss is None or isinstance(loss, dict | list | tuple):
        return None
    function = losses.get(loss)
    return FUNCTIONS.get(function, function)


def _from_logits(loss: Any) -> bool | None:
    """Whether a cross-entropy takes logits; None of another loss."""
    return loss.get_config().get("from_logits") if isinstance(loss, losses.Loss) else None


def _of_loss(loss: Any, shape: tuple[int | None, ...]) -> Scorer:
    of_examples = loss.call if isinstance(loss, losses.Loss) else loss
    sparse = isinstance(loss, losses.SparseCategoricalCrossentropy)
    binary = isinstance(loss, losses.BinaryCrossentropy)

    def scores(y: Any, outputs: Any) -> dict[str, Any]:
        targets, outputs = ops.cast(y, "float32"), ops.cast(outputs, "float32")
        if not sparse:
            targets, outputs = (aligned if binary else of_one_rank)(targets, outputs)
        found = {"loss": of_examples(targets, outputs)}
        if binary:
            right = ops.equal(outputs > (0.0 if _from_logits(loss) else 0.5), targets > 0.5)
            found["accuracy"] = ops.mean(ops.cast(right, "float32"), axis=-1)
        elif sparse or isinstance(loss, losses.CategoricalCrossentropy):
            found["accuracy"] = classification(y, outputs)["accuracy"]
        return found

    def labels(y: Any) -> Any:
        if binary and not np.all((np.asarray(y) >= 0) & (np.asarray(y) <= 1)):
            raise ValueError("Answers of yes or no must be from 0 to 1.")
        return checked(y, shape) if sparse else y

    return Scorer(_of_copies(scores), labels)


def _of_copies(scores: Callable[[Any, Any], Any]) -> Scores:
    """The same of outputs that do not remember how they were made, by name.

    Keras's losses on TensorFlow look for the logits before a softmax or sigmoid, and use these whatever they are told;
    on other backends they do not.
    """

    def of_copies(y: Any, outputs: Any) -> dict[str, Any]:
        found = scores(y, keras.tree.map_structure(ops.copy, outputs))
        found = found if isinstance(found, dict) else {"loss": found}
        if "loss" not in found or not all(len(values.shape) for values in found.values()):
            raise ValueError(
                "Scores must be a number for each example, [batch] or [batch, steps], one of them named 'loss'. "
                f"Received: { {name: tuple(values.shape) for name, values in found.items()} }"
            )
        return found

    return of_copies
