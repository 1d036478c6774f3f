"""The numbers of an evaluation: from logits and labels to what is said about them. Needs numpy only."""

import math
from pathlib import Path
from typing import TypeVar

import numpy as np
from pydantic import ValidationError

from pipelines.core.config import Frozen
from pipelines.core.errors import UserError
from pipelines.core.run import Run, Weights
from pipelines.training.regression import Regression

Z95 = 1.959963984540054
Kind = TypeVar("Kind", bound=Frozen)


class ClassResult(Frozen):
    """One class of the test split."""

    label: str
    """Its name."""
    count: int
    """Its examples."""
    correct: int
    """Those of them that were recognised."""

    @property
    def accuracy(self) -> float:
        """Share of its examples that were recognised; 0 where there are none."""
        return self.correct / self.count if self.count else 0.0


class Evaluation(Frozen):
    """What is kept in evaluation.json."""

    weights: Weights
    """Which weights were measured."""
    data: str
    """Name and version of the data."""
    split: str = "test"
    """Always the test split."""
    count: int
    """Examples."""
    correct: int
    """Those of them that were recognised."""
    accuracy: float
    """Their share."""
    interval: tuple[float, float]
    """Wilson's 95 % interval of the accuracy: what drawing other test images would change. Not the spread of seeds."""
    loss: float
    """Mean cross-entropy in nats, without label smoothing and weight penalty."""
    classes: tuple[ClassResult, ...]
    """The same for each class, by index."""
    confusion: tuple[tuple[int, ...], ...]
    """Examples by true class (row) and predicted class (column)."""

    @property
    def told(self) -> str:
        """The result in a few words."""
        return f"test accuracy {self.accuracy:.2%}"


def evaluate(logits: np.ndarray, labels: np.ndarray, names: tuple[str, ...], weights: Weights, data: str) -> Evaluation:
    """Counts and averages.

    Args:
        logits: float [n, classes].
        labels: int [n], the true classes.
        names: of the classes.
        weights: which weights made the logits.
        data: name and version of the data.

    Returns:
        The evaluation.

    Example:
        evaluate(model.predict(images), labels, run.record.data.labels, "final", "mnist 3.0.1").accuracy
    """
    logits = logits.astype(np.float64)
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_probabilities = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
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
        classes=tuple(
            ClassResult(label=name, count=int(row.sum()), correct=int(row[index]))
            for index, (name, row) in enumerate(zip(names, confusion, strict=True))
        ),
        confusion=tuple(tuple(row) for row in confusion.tolist()),
    )


def interval(correct: int, count: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share, which stays inside [0, 1] and is right near its ends.

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


def of_run(run: Run) -> Evaluation | Regression | None:
    """What was measured of a run on the test split; None if it was not evaluated.

    Raises:
        UserError: evaluation.json is damaged.
    """
    path = run.path / "evaluation.json"
    return read(path, Evaluation) if run.record.data.labels else read(path, Regression)


def read(path: Path, kind: type[Kind]) -> Kind | None:
    """Reads evaluation.json; None if there is none.

    Args:
        path: the file.
        kind: `Evaluation`, or `Regression` where a number was predicted.

    Raises:
        UserError: if it is damaged.
    """
    if not path.exists():
        return None
    try:
        return kind.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise UserError(f"{path} is damaged. Evaluate the run again after removing it.") from error
