"""The numbers of an evaluation where a number was predicted, not a class. Needs numpy only."""

from typing import Literal

import numpy as np

from pipelines.core.config import Frozen
from pipelines.core.errors import UserError
from pipelines.core.run import Weights


class Regression(Frozen):
    """What is kept in evaluation.json of a regression."""

    weights: Weights
    """Which weights were measured."""
    data: str
    """Name and version of the data."""
    split: Literal["test"] = "test"
    """Always the test split."""
    count: int
    """Examples."""
    rmse: float
    """Root of the mean squared error, in the unit of the target."""
    mae: float
    """Mean absolute error, in the unit of the target."""
    r2: float
    """1 - (squared errors of the net) / (squared errors of always saying the mean of the training targets): 1 is
    perfect, 0 no better than that mean, below 0 worse."""
    training_mean: float
    """Mean of the training targets."""

    @property
    def loss(self) -> float:
        """Mean squared error, by which the net was trained."""
        return self.rmse**2

    @property
    def told(self) -> str:
        """The result in a few words."""
        return f"test R^2 {self.r2:.4f}"


def measure(
    predicted: np.ndarray, targets: np.ndarray, training_mean: float, weights: Weights, data: str
) -> Regression:
    """Averages errors.

    Args:
        predicted: float [n, 1].
        targets: float [n, 1], what was to be predicted.
        training_mean: of the training targets, the forecast to beat.
        weights: which weights made the predictions.
        data: name and version of the data.

    Returns:
        The evaluation.

    Raises:
        UserError: if all targets are the mean of training, so that there is nothing to explain.

    Example:
        measure(model.predict(inputs), targets, 0.65, "final", "fama_french 1.0.0").r2
    """
    targets = targets.astype(np.float64)
    errors = predicted.astype(np.float64) - targets
    spread = np.square(targets - training_mean).sum()
    if not spread:
        raise UserError(f"R^2 has no meaning on {data}: all targets of its test split are the mean of training.")
    return Regression(
        weights=weights,
        data=data,
        count=len(targets),
        rmse=float(np.sqrt(np.square(errors).mean())),
        mae=float(np.abs(errors).mean()),
        r2=float(1 - np.square(errors).sum() / spread),
        training_mean=training_mean,
    )
