"""Validation of labels: accepts classes in any usual form, or raises one clear error."""

from collections.abc import Sequence
from typing import Any

import numpy as np

SUM_TOLERANCE = 1e-3  # Rounding allowed in the sum of an example's probabilities.


def check_labels(y: Any, outputs: Sequence[int | None], ignored: int | None = None) -> np.ndarray:
    """Checks labels against the outputs of a classifier and brings them into one form.

    Args:
        y: class numbers of the shape of the outputs without the last axis, or with a last axis of length 1, as in
            `keras.datasets.cifar10`; or one-hot labels or probabilities of the shape of the outputs. Outputs with a
            last axis of length 1 have the classes 0 and 1.
        outputs: shape of the outputs, `[batch, classes]`, `[batch, steps, classes]` or `[batch]`.
        ignored: a number that is accepted in addition to the classes.

    Returns:
        int32 class numbers of the shape of the outputs without the last axis; soft labels as float32 of the shape of
        the outputs.

    Raises:
        ValueError: if the shapes do not match, a class number is out of range, or probabilities do not sum to 1.

    Example:
        >>> check_labels([[2], [0]], (None, 3))
        array([2, 0], dtype=int32)
    """
    y = np.asarray(y)
    *steps, classes = [None if size is None else int(size) for size in outputs[1:]] or [1]
    if classes is None:
        raise ValueError(f"The last axis of the outputs, the classes, must be defined. Received: {outputs}")
    if y.dtype.kind not in "biuf":
        raise _label_error(y, steps, classes, "labels must be numbers")
    rank = len(steps) + 1
    if y.ndim == rank + 1 and y.shape[-1] == 1:
        y = y[..., 0]
    if y.ndim not in (rank, rank + 1) or any(
        size not in (None, given) for size, given in zip(steps, y.shape[1:], strict=False)
    ):
        raise _label_error(y, steps, classes)
    if y.ndim == rank:
        return _from_numbers(y, steps, classes, ignored)
    if y.shape[-1] != classes:
        raise _label_error(y, steps, classes)
    return _from_probabilities(y, steps, classes)


def class_numbers(y: Any, classes: int | None = None) -> np.ndarray:
    """Converts labels to class numbers.

    Args:
        y: class numbers `[examples]` or `[examples, 1]`, or one-hot labels or probabilities, `[examples, classes]`.
        classes: number of classes; None accepts any class numbers.

    Returns:
        Class numbers `[examples]`, the most probable ones for probabilities.

    Raises:
        ValueError: see `check_labels`.

    Example:
        >>> class_numbers([[0, 1], [1, 0]], 2)
        array([1, 0])
    """
    y = np.asarray(y)
    if classes is None and (y.ndim < 2 or y.shape[1:] == (1,)):
        return y.ravel()
    labels = check_labels(y, (None, classes or y.shape[-1]))
    return labels.argmax(axis=1) if labels.ndim == 2 else labels


def _from_numbers(y: np.ndarray, steps: list[int | None], classes: int, ignored: int | None) -> np.ndarray:
    known = y if ignored is None else y[y != ignored]
    if known.size:
        low, high = known.min(), known.max()
        if not (low >= 0 and high < max(classes, 2)):
            raise _label_error(y, steps, classes, f"they are from {low} to {high}")
        if y.dtype.kind == "f" and np.any(y != np.floor(y)):
            raise _label_error(y, steps, classes, "they are not whole numbers")
    return y.astype("int32")


def _from_probabilities(y: np.ndarray, steps: list[int | None], classes: int) -> np.ndarray:
    sums = y.sum(axis=-1, dtype="float64")
    if y.size and not (y.min() >= 0 and np.abs(sums - 1).max() <= SUM_TOLERANCE):
        raise _label_error(y, steps, classes, "the rows are not probabilities with a sum of 1")
    hard = bool(np.all((y == 0) | (y == 1)))
    return y.argmax(axis=-1).astype("int32") if hard else y.astype("float32")


def _label_error(y: np.ndarray, steps: list[int | None], classes: int, reason: str = "") -> ValueError:
    sizes = "".join(f", {'steps' if size is None else size}" for size in steps)
    numbers = f"[batch{sizes}] or [batch{sizes}, 1]"
    others = f", or one-hot labels or probabilities, [batch{sizes}, {classes}]" if classes > 1 else ""
    return ValueError(
        f"y must be class numbers from 0 to {max(classes, 2) - 1}, {numbers}{others}. For other targets, pass "
        "scores=highway_keras.analysis.regression or a Keras loss. "
        f"Received: y of shape {y.shape} and dtype {y.dtype}{'; ' + reason if reason else ''}"
    )
