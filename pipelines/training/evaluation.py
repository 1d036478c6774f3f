"""Evaluation of classifiers and regressions: metrics from outputs and labels. Imports no framework."""

import math
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from pydantic import ValidationError

from pipelines.core.errors import UserError
from pipelines.core.frozen import Frozen
from pipelines.core.run import DataRecord, Run, Weights
from pipelines.training.multi_label import MultiLabel, calibration_gap, cross_entropy

Z95 = 1.959963984540054
Kind = TypeVar("Kind", bound=Frozen)


class ClassResult(Frozen):
    """One class of the test split."""

    label: str
    """Name of the class."""
    count: int
    """Number of its examples."""
    correct: int
    """Correctly classified examples."""

    @property
    def accuracy(self) -> float:
        """Share of its examples that are classified correctly; 0 if it has none."""
        return self.correct / self.count if self.count else 0.0


class Evaluation(Frozen):
    """The content of evaluation.json."""

    weights: Weights
    """The evaluated weights."""
    data: str
    """Name and version of the data."""
    split: str = "test"
    """The test split; for other data than those of training, "all" if they have no test split."""
    count: int
    """Number of examples."""
    correct: int
    """Correctly classified examples."""
    accuracy: float
    """Share of correctly classified examples."""
    interval: tuple[float, float]
    """Wilson's 95% interval of the accuracy: the sampling error of the test images, not the spread over seeds."""
    loss: float
    """Mean cross-entropy in nats, without label smoothing and weight penalty."""
    calibration_error: float | None = None
    """Mean difference between confidence and accuracy; see `calibration_error`. None in files of earlier versions."""
    mirrored: float | None = None
    """Accuracy of logits averaged over each image and its mirror image, which no other figure uses; None if not
    measured."""
    classes: tuple[ClassResult, ...]
    """Results of each class, by index."""
    confusion: tuple[tuple[int, ...], ...]
    """Examples by true class (row) and predicted class (column)."""

    def precision(self, index: int) -> float:
        """Returns the share of the examples predicted as a class that belong to it; 0 if there are none."""
        predicted = sum(row[index] for row in self.confusion)
        return self.confusion[index][index] / predicted if predicted else 0.0

    def f1(self, index: int) -> float:
        """Returns the harmonic mean of precision and recall of a class; its accuracy is its recall."""
        examples = sum(self.confusion[index]) + sum(row[index] for row in self.confusion)
        return 2 * self.confusion[index][index] / examples if examples else 0.0

    @property
    def summary(self) -> str:
        """One-line summary of the result."""
        mirrored = "" if self.mirrored is None else f" (averaged with mirror images: {self.mirrored:.2%})"
        return f"test accuracy {self.accuracy:.2%}{mirrored}"


class Regression(Frozen):
    """The content of evaluation.json for a regression."""

    weights: Weights
    """The evaluated weights."""
    data: str
    """Name and version of the data."""
    split: str = "test"
    """The test split; "all" for other data than those of training."""
    count: int
    """Number of examples."""
    rmse: float
    """Root of the mean squared error, in the unit of the target."""
    mae: float
    """Mean absolute error, in the unit of the target."""
    r2: float | None
    """1 - (squared errors of the net) / (squared deviations of the targets from their mean): 1 is perfect, 0 is as good
    as that mean, negative is worse. None if all targets are the same, such as that of a single row. In files of earlier
    versions, deviations are those from the training mean."""
    training_mean: float
    """Mean of the training targets."""

    @property
    def loss(self) -> float:
        """Mean squared error, the loss of the net."""
        return self.rmse**2

    @property
    def summary(self) -> str:
        """One-line summary of the result."""
        return f"test R² {self.shown_r2()}"

    def shown_r2(self, digits: int = 4) -> str:
        """Returns R² as text, with a number of decimal places."""
        return "undefined" if self.r2 is None else f"{self.r2:.{digits}f}"


AnyEvaluation: TypeAlias = Evaluation | MultiLabel | Regression


def measure(logits: np.ndarray, labels: np.ndarray, names: tuple[str, ...], weights: Weights, data: str) -> Evaluation:
    """Computes the metrics of a classifier.

    Args:
        logits: float [n, classes].
        labels: int [n], the true classes.
        names: names of the classes.
        weights: the weights that gave the logits.
        data: name and version of the data.

    Returns:
        The evaluation.

    Example:
        measure(model.predict(images), labels, run.record.data.labels, "final", "mnist 3.0.1").accuracy
    """
    logits = logits.astype(np.float64)
    log_probabilities = logits - logits.max(axis=1, keepdims=True)
    log_probabilities -= np.log(np.exp(log_probabilities).sum(axis=1, keepdims=True))
    confusion = np.zeros((len(names), len(names)), dtype=np.int64)
    np.add.at(confusion, (labels, logits.argmax(axis=1)), 1)
    count, correct = len(labels), int(np.trace(confusion))
    return Evaluation(
        weights=weights,
        data=data,
        count=count,
        correct=correct,
        accuracy=correct / count,
        interval=interval(correct, count),
        loss=float(-log_probabilities[np.arange(count), labels].mean()),
        calibration_error=calibration_error(np.exp(log_probabilities), labels),
        classes=tuple(
            ClassResult(label=name, count=int(row.sum()), correct=int(row[index]))
            for index, (name, row) in enumerate(zip(names, confusion, strict=True))
        ),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def calibration_error(probabilities: np.ndarray, labels: np.ndarray, bins: int = 15) -> float:
    """Computes the expected calibration error: the mean gap between the confidence and the accuracy of a net.

    Examples are divided into bins of equal width by the probability of the predicted class. The result is the mean over
    examples of the difference between mean probability and accuracy of their bin.

    Args:
        probabilities: float [n, classes].
        labels: int [n], the true classes.
        bins: number of bins.

    Returns:
        0 for a perfectly calibrated net, at most 1.

    Example:
        calibration_error(np.array([[0.9, 0.1]] * 10), np.array([0] * 8 + [1] * 2))  # 0.1

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, section 2.
    """
    return calibration_gap(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels, bins)


def fit_temperature(logits: np.ndarray, labels: np.ndarray) -> float:
    """Fits the temperature: the number by which logits are divided to calibrate the probabilities.

    It minimizes the mean cross-entropy, and leaves the order of the classes as it is. Labels count as right only with
    the probability (n + 1) / (n + 2), as if one more example were right and one wrong: otherwise a net that is right
    on all of a few examples would become certain of everything.

    Args:
        logits: float [n, classes], of held-out examples: on training examples, a net is more often right.
        labels: int [n], the true classes; or 1 for each of several classes, uint8 [n, classes].

    Returns:
        The temperature, from 0.05 to 20; above 1 for an overconfident net.

    Example:
        fit_temperature(10 * logits, labels) / fit_temperature(logits, labels)  # 10

    Reference:
        Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599, section 4.2; Platt 1999,
        "Probabilistic Outputs for Support Vector Machines", section 2.2.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    logits, doubt = logits.astype(np.float64), 1 / (len(labels) + 2)

    def loss(log_temperature: float) -> float:
        scaled = logits / math.exp(log_temperature)
        if labels.ndim == 2:
            return cross_entropy(scaled, labels * (1 - 2 * doubt) + doubt)
        right = log_softmax(scaled, axis=1)[np.arange(len(labels)), labels]
        wrong = np.log(np.maximum(-np.expm1(right), np.finfo(np.float64).tiny))
        return -float(((1 - doubt) * right + doubt * wrong).mean())

    return float(math.exp(minimize_scalar(loss, bounds=(-math.log(20), math.log(20)), method="bounded").x))


def measure_regression(
    predicted: np.ndarray, targets: np.ndarray, training_mean: float, weights: Weights, data: str
) -> Regression:
    """Computes the metrics of a regression.

    Args:
        predicted: float [n, 1].
        targets: float [n, 1].
        training_mean: mean of the training targets, which figures show.
        weights: the weights that gave the predictions.
        data: name and version of the data.

    Returns:
        The evaluation.

    Example:
        measure_regression(model.predict(inputs), targets, 0.65, "final", "fama_french 1.0.0").r2
    """
    targets = targets.astype(np.float64)
    errors = predicted.astype(np.float64) - targets
    # As scikit-learn's r2_score, and as `predict` computes it.
    spread = np.square(targets - targets.mean()).sum()
    return Regression(
        weights=weights,
        data=data,
        count=len(targets),
        rmse=float(np.sqrt(np.square(errors).mean())),
        mae=float(np.abs(errors).mean()),
        r2=float(1 - np.square(errors).sum() / spread) if spread else None,
        training_mean=training_mean,
    )


def interval(correct: int, count: int) -> tuple[float, float]:
    """Computes Wilson's 95% interval of a share, which stays inside [0, 1] and is accurate near both ends.

    Args:
        correct: hits.
        count: trials, at least 1.

    Returns:
        Lower and upper bound.

    Example:
        interval(9954, 10000)  # (0.9939, 0.9965)
    """
    share, z = correct / count, Z95**2 / count
    centre = (share + z / 2) / (1 + z)
    half = Z95 * math.sqrt(share * (1 - share) / count + z / (4 * count)) / (1 + z)
    return max(0.0, centre - half), min(1.0, centre + half)


def of_run(run: Run) -> AnyEvaluation | None:
    """Returns the evaluation of a run on the test split; None if there is none.

    Raises:
        UserError: evaluation.json is damaged.
    """
    path = run.path / "evaluation.json"
    return read(path, kind_of(run.record.data))


def kind_of(data: DataRecord) -> type[AnyEvaluation]:
    """Returns the kind of evaluation of a net that was trained on data."""
    if not data.labels:
        return Regression
    return MultiLabel if data.multi_label else Evaluation


def read(path: Path, kind: type[Kind]) -> Kind | None:
    """Reads evaluation.json; None if there is none.

    Args:
        path: the file.
        kind: the result of `kind_of`.

    Raises:
        UserError: the file is damaged.
    """
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path} is damaged. Remove it, and evaluate the run again.") from error
