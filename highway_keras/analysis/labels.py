"""One check of labels for all of analysis: classes in any of their usual forms, or one clear error."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SUM_TOLERANCE = 1e-3  # Of the probabilities of one example, whose sum is 1 but for rounding.


def checked(y: Any, outputs: Sequence[int | None]) -> np.ndarray:
    """Labels that fit the outputs of a classifier, in one form.

    Args:
        y: class numbers of the shape of the outputs without their last axis, or with an axis of length 1 in its place,
            as `keras.datasets.cifar10` gives them; or one-hot, or probabilities, of the shape of the outputs. Where the
            outputs have a last axis of length 1 the classes are 0 and 1.
        outputs: shape of the outputs, `[batch, classes]`, `[batch, steps, classes]` or `[batch]`.

    Returns:
        int32 class numbers of the shape of the outputs without their last axis; probabilities that are not one-hot as
        float32, of the shape of the outputs.

    Raises:
        ValueError: if the shape does not fit, a class number is no class of the outputs, or probabilities do not add up
            to 1.

    Example:
        >>> checked([[2], [0]], (None, 3))
        array([2, 0], dtype=int32)
    """
    y = np.asarray(y)
    *places, classes = [None if size is None else int(size) for size in outputs[1:]] or [1]
    if classes is None:
        raise ValueError(f"The last axis of the outputs must be defined, to know the classes. Received: {outputs}")
    if y.dtype.kind not in "biuf":
        raise _refused(y, places, classes, "labels must be numbers")
    rank = len(places) + 1
    if y.ndim == rank + 1 and y.shape[-1] == 1:
        y = y[..., 0]
    if y.ndim not in (rank, rank + 1) or any(
        size not in (None, given) for size, given in zip(places, y.shape[1:], strict=False)
    ):
        raise _refused(y, places, classes)
    if y.ndim == rank:
        return _numbers(y, places, classes)
    if y.shape[-1] != classes:
        raise _refused(y, places, classes)
    return _chances(y, places, classes)


def class_of_each(y: Any, classes: int | None = None) -> np.ndarray:
    """One class for each example.

    Args:
        y: class numbers `[examples]` or `[examples, 1]`, or one-hot or probabilities, `[examples, classes]`, of which
            the largest counts.
        classes: how many there are; None takes any class numbers.

    Returns:
        Class numbers `[examples]`.

    Raises:
        ValueError: as `checked`.

    Example:
        >>> class_of_each([[0, 1], [1, 0]], 2)
        array([1, 0])
    """
    y = np.asarray(y)
    if classes is None and (y.ndim < 2 or y.shape[1:] == (1,)):
        return y.ravel()
    found = checked(y, (None, classes or y.shape[-1]))
    return found.argmax(axis=1) if found.ndim == 2 else found


def _numbers(y: np.ndarray, places: list[int | None], classes: int) -> np.ndarray:
    if y.size:
        low, high = y.min(), y.max()
        if not (low >= 0 and high < max(classes, 2)):
            raise _refused(y, places, classes, f"they are from {low} to {high}")
        if y.dtype.kind == "f" and np.any(y != np.floor(y)):
            raise _refused(y, places, classes, "they are no whole numbers")
    return y.astype("int32")


def _chances(y: np.ndarray, places: list[int | None], classes: int) -> np.ndarray:
    sums = y.sum(axis=-1, dtype="float64")
    if y.size and not (y.min() >= 0 and np.abs(sums - 1).max() <= SUM_TOLERANCE):
        raise _refused(y, places, classes, "the rows are no probabilities: from 0, with a sum of 1")
    hard = bool(np.all((y == 0) | (y == 1)))
    return y.argmax(axis=-1).astype("int32") if hard else y.astype("float32")


def _refused(y: np.ndarray, places: list[int | None], classes: int, why: str = "") -> ValueError:
    sizes = "".join(f", {'steps' if size is None else size}" for size in places)
    numbers = f"[batch{sizes}] or [batch{sizes}, 1]"
    others = f", or one-hot or probabilities, [batch{sizes}, {classes}]" if classes > 1 else ""
    return ValueError(
        f"y must be class numbers from 0 to {max(classes, 2) - 1}, {numbers}{others}. For targets that are no classes, "
        "pass scores=highway_keras.analysis.regression or a Keras loss. "
        f"Received: y of shape {y.shape} and dtype {y.dtype}{'; ' + why if why else ''}"
    )
