"""The optimiser of a run, and the mean of the weights that it can keep."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras
import numpy as np

from pipelines.core.config import Optimizer
from pipelines.core.errors import UserError


@keras.saving.register_keras_serializable(package="highway_pipelines")
class BiasRateSGD(keras.optimizers.SGD):
    """SGD whose biases learn at another rate than the rest, as Caffe's `lr_mult` does.

    The multiplier is on the rate inside the momentum, so with a constant rate it is on the whole step.

    Args:
        learning_rate: number or schedule, for everything but biases.
        bias_multiplier: factor on it for each variable whose name contains "bias".
        **kwargs: as `keras.optimizers.SGD`.
    """

    def __init__(self, learning_rate: Any = 0.01, bias_multiplier: float = 1.0, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self.bias_multiplier = bias_multiplier

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """One step for one variable; called by Keras."""
        if "bias" in variable.name:
            learning_rate = learning_rate * self.bias_multiplier
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        """The arguments that make the same optimiser."""
        return {**super().get_config(), "bias_multiplier": self.bias_multiplier}


def build(settings: Optimizer, learning_rate: Any) -> keras.optimizers.Optimizer:
    """The Keras optimiser for `settings`.

    Args:
        settings: which, and its numbers.
        learning_rate: a number or a schedule, from `schedules.build`.

    Returns:
        The optimiser, not yet built. With `settings.ema` it keeps the running mean of the weights.

    Raises:
        UserError: for a bias multiplier with Adam, which has none.
    """
    shared: dict[str, Any] = {"global_clipnorm": settings.clip_norm}
    if settings.ema is not None:
        shared |= {"use_ema": True, "ema_momentum": settings.ema}
    if settings.name == "adam":
        if settings.bias_multiplier != 1.0:
            raise UserError(
                f"a bias multiplier of {settings.bias_multiplier} needs SGD; Adam takes the same rate for all weights. "
                "Add --optimizer.bias-multiplier 1, or take --optimizer.name sgd."
            )
        return keras.optimizers.Adam(learning_rate, epsilon=settings.epsilon, **shared)
    return BiasRateSGD(
        learning_rate,
        bias_multiplier=settings.bias_multiplier,
        momentum=settings.momentum,
        nesterov=settings.nesterov and settings.momentum > 0,
        **shared,
    )


@contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """The running mean in place of the weights, until the block ends; nothing without one.

    Keras's `SwapEMAWeights` swaps by adding and subtracting, which changes last bits, so that validating would change
    what is trained. This copies.

    Args:
        model: a compiled model.
    """
    if not getattr(getattr(model.optimizer, "inner_optimizer", model.optimizer), "use_ema", False):
        yield
        return
    kept = [np.array(variable.numpy()) for variable in model.trainable_variables]
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        # On JAX the line above makes one array of mean and weight, and validation gives away the memory of weights.
        variable.assign(np.array(variable.numpy()))
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, kept, strict=True):
            variable.assign(value)
