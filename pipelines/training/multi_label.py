"""Evaluation of nets whose examples have any number of classes. Imports no framework.

The main figure is the mean average precision, the usual one of the field (as in PASCAL VOC): it needs no threshold, and
a net that never predicts a rare class gains nothing. The share of labels that are right hides that, because most labels
of most examples are absent.
"""

from collections.abc import Sequence

import numpy as np

from pipelines.core.frozen import Frozen
from pipelines.core.run import Weights


class LabelResult(Frozen):
    """One class among several of an example."""

    label: str
    """Name of the class."""
    count: int
    """Number of examples that have it."""
    predicted: int
    """Number of examples for which its probability is above one half."""
    correct: int
    """Number of examples that are in both."""
    average_precision: float | None
    """Area under precision over recall, for all thresholds; None if no example has the class."""

    @property
    def precision(self) -> float:
        """Share of the examples predicted to have it that do; 0 if there are none."""
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        """Share of the examples with it that are predicted to have it; 0 if there are none."""
        return self.correct / self.count if self.count else 0.0

    @property
    def f1(self) -> float:
        """Harmonic mean of both."""
        return 2 * self.correct / (self.count + self.predicted) if self.count + self.predicted else 0.0


class MultiLabel(Frozen):
    """The content of evaluation.json if examples may have any number of classes."""

    weights: Weights
    """The evaluated weights."""
    data: str
    """Name and version of the data."""
    split: str = "test"
    """The test split; for other data than those of training, "all" if they have no test split."""
    count: int
    """Number of examples."""
    mean_average_precision: float
    """Mean of the average precisions of the classes that occur."""
    macro_f1: float
    """Mean F1 of the classes that occur or are predicted, at a probability of one half."""
    label_accuracy: float
    """Share of all labels, one for each example and class, that are right: present, or absent."""
    exact: float
    """Share of the examples all of whose labels are right."""
    loss: float
    """Mean cross-entropy of an example in nats, a sum over the classes, without label smoothing and weight penalty."""
    calibration_error: float
    """Mean difference between the probability of a label and how often it is present; see `calibration_error`."""
    classes: tuple[LabelResult, ...]
    """Results of each class, by index."""

    @property
    def summary(self) -> str:
        """One-line summary of the result."""
        return f"test mean average precision {self.mean_average_precision:.2%}, macro F1 {self.macro_f1:.3f}"


def measure(logits: np.ndarray, truth: np.ndarray, names: Sequence[str], weights: Weights, data: str) -> MultiLabel:
    """Computes the metrics of a net with a logit for each class.

    Args:
        logits: float [n, classes].
        truth: uint8 [n, classes], 1 for each class of an example.
        names: names of the classes.
        weights: the weights that gave the logits.
        data: name and version of the data.

    Example:
        measure(model.predict(images), labels, ("cat", "dog"), "final", "photos 1.0.0").mean_average_precision
    """
    true, predicted = truth > 0, logits > 0
    right = true == predicted
    classes = tuple(
        LabelResult(
            label=name,
            count=int(true[:, index].sum()),
            predicted=int(predicted[:, index].sum()),
            correct=int((true & predicted)[:, index].sum()),
            average_precision=average_precision(logits[:, index], true[:, index]),
        )
        for index, name in enumerate(names)
    )
    precisions = [one.average_precision for one in classes if one.average_precision is not None]
    scores = [one.f1 for one in classes if one.count + one.predicted]
    return MultiLabel(
        weights=weights,
        data=data,
        count=len(truth),
        mean_average_precision=float(np.mean(precisions)) if precisions else 0.0,
        macro_f1=float(np.mean(scores)) if scores else 0.0,
        label_accuracy=float(right.mean()),
        exact=float(right.all(axis=1).mean()),
        loss=cross_entropy(logits, truth),
        calibration_error=calibration_error(logits, true),
        classes=classes,
    )


def cross_entropy(logits: np.ndarray, truth: np.ndarray) -> float:
    """Returns the mean cross-entropy of an example in nats, a sum over the classes; arguments as for `measure`."""
    logits = logits.astype(np.float64)
    return float((np.logaddexp(0, logits) - truth * logits).sum(axis=1).mean())


def average_precision(scores: np.ndarray, true: np.ndarray) -> float | None:
    """Computes the area under precision over recall of a class, as scikit-learn does: a sum, without interpolation.

    Args:
        scores: float [n], higher for examples that are more likely to have the class.
        true: bool [n].

    Returns:
        The precision at each threshold, weighted by the recall that it adds; None if no example has the class.

    Example:
        average_precision(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]))  # (1 + 2 / 3) / 2
    """
    if not true.any():
        return None
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(true[order])
    # Equal scores share a threshold.
    ends = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1)
    added = np.diff(hits[ends], prepend=0)
    return float((hits[ends] / (ends + 1) * added).sum() / hits[-1])


def calibration_error(logits: np.ndarray, true: np.ndarray, bins: int = 15) -> float:
    """Computes the mean gap between the probability of a label and the share of such labels that are present.

    Labels are divided into bins of equal width by their probability.

    Args:
        logits: float [n, classes].
        true: bool [n, classes].
        bins: number of bins.
    """
    return calibration_gap(sigmoid(logits).ravel(), true.ravel(), bins)


def calibration_gap(probabilities: np.ndarray, true: np.ndarray, bins: int) -> float:
    """Computes the mean gap between probabilities and how often they come true, in bins of equal width.

    Args:
        probabilities: float [n].
        true: bool [n].
        bins: number of bins; each includes its upper end.
    """
    at = np.clip(np.ceil(probabilities * bins).astype(int) - 1, 0, bins - 1)
    return float(np.abs(np.bincount(at, probabilities - true, bins)).sum() / max(true.size, 1))


def sigmoid(logits: np.ndarray) -> np.ndarray:
    """Returns the probabilities of logits, float64."""
    return np.exp(-np.logaddexp(0, -logits.astype(np.float64)))
