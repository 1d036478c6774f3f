"""Optimizers, learning-rate schedules and the moving average of the weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, assert_never

import keras
import numpy as np

from pipelines.core.config import (
    SGD,
    Adam,
    AdamW,
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    Optimizer,
    Schedule,
    StepSchedule,
)
from pipelines.core.errors import UserError


@keras.saving.register_keras_serializable(package="highway_pipelines")
class BiasRateSGD(keras.optimizers.SGD):
    """SGD with a separate learning rate for biases, like Caffe's `lr_mult`.

    The multiplier scales the rate inside the momentum; with a constant rate, this scales the whole step.

    Args:
        learning_rate: number or schedule, for everything but biases.
        bias_multiplier: factor on the rate of each variable whose name contains "bias".
        **kwargs: further arguments of `keras.optimizers.SGD`.
    """

    def __init__(self, learning_rate: Any = 0.01, bias_multiplier: float = 1.0, **kwargs: Any) -> None:
        super().__init__(learning_rate, **kwargs)
        self.bias_multiplier = bias_multiplier

    def update_step(self, gradient: Any, variable: Any, learning_rate: Any) -> None:
        """Updates one variable; called by Keras."""
        if "bias" in variable.name:
            learning_rate = learning_rate * self.bias_multiplier
        super().update_step(gradient, variable, learning_rate)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the optimizer."""
        return {**super().get_config(), "bias_multiplier": self.bias_multiplier}


def build(settings: Optimizer, learning_rate: Any) -> keras.optimizers.Optimizer:
    """Builds the Keras optimizer of a configuration.

    Args:
        settings: the optimizer and its hyperparameters.
        learning_rate: number or schedule, from `rate`.

    Returns:
        The optimizer, not built yet. With `settings.ema` it keeps a moving average of the weights.
    """
    shared: dict[str, Any] = {"global_clipnorm": settings.clip_norm}
    if settings.ema is not None:
        shared |= {"use_ema": True, "ema_momentum": settings.ema}
    match settings:
        case SGD(momentum=momentum):
            return BiasRateSGD(
                learning_rate,
                bias_multiplier=settings.bias_multiplier,
                momentum=momentum,
                nesterov=settings.nesterov and momentum > 0,
                **shared,
            )
        case Adam(epsilon=epsilon):
            return keras.optimizers.Adam(learning_rate, epsilon=epsilon, **shared)
        case AdamW(epsilon=epsilon, weight_decay=weight_decay):
            decayed = keras.optimizers.AdamW(learning_rate, weight_decay, epsilon=epsilon, **shared)
            # Weight decay of its bias would open a gate that starts closed.
            decayed.exclude_from_weight_decay(var_names=["bias"])
            return decayed
        case _:
            assert_never(settings)


def rate(schedule: Schedule, learning_rate: float, steps: int) -> Any:
    """Builds the learning rate of a Keras optimizer.

    Args:
        schedule: the schedule and its parameters.
        learning_rate: the initial learning rate; with warm-up, the rate at its end.
        steps: steps of the whole run, at the end of which the cosine reaches zero.

    Returns:
        A number, or a `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        UserError: the warm-up takes all steps.

    Example:
        build(config.optimizer, rate(config.schedule, 0.01, steps=180_000))
    """
    match schedule:
        case ConstantSchedule():
            return learning_rate
        case StepSchedule(boundaries=boundaries, factor=factor):
            # At the boundary itself, Keras still uses the old rate; Caffe, and so our recipes, use the new one.
            return keras.optimizers.schedules.PiecewiseConstantDecay(
                [boundary - 1 for boundary in boundaries],
                [learning_rate * factor**power for power in range(len(boundaries) + 1)],
            )
        case ExponentialSchedule():
            return keras.optimizers.schedules.ExponentialDecay(learning_rate, schedule.decay_steps, schedule.factor)
        case CosineSchedule(warmup_steps=0):
            return keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        case CosineSchedule(warmup_steps=warmup):
            if warmup >= steps:
                raise UserError(
                    f"a warm-up of {warmup} steps takes up all of a run of {steps} steps. "
                    "Lower --schedule.warmup-steps, or train for more epochs."
                )
            return keras.optimizers.schedules.CosineDecay(
                initial_learning_rate=0.0,
                decay_steps=steps - warmup,
                warmup_target=learning_rate,
                warmup_steps=warmup,
            )
        case _:
            assert_never(schedule)


@contextmanager
def averaged(model: keras.Model) -> Iterator[None]:
    """Replaces the weights with their moving average until the block ends; does nothing if there is none.

    Keras's `SwapEMAWeights` swaps by adding and subtracting, whose rounding would let validation change training. This
    one copies.

    Args:
        model: a compiled model.
    """
    if not getattr(getattr(model.optimizer, "inner_optimizer", model.optimizer), "use_ema", False):
        yield
        return
    weights = [np.array(variable.numpy()) for variable in model.trainable_variables]
    model.optimizer.finalize_variable_values(model.trainable_variables)
    for variable in model.trainable_variables:
        # On JAX, average and weight now share one array, whose memory validation would donate.
        variable.assign(np.array(variable.numpy()))
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, weights, strict=True):
            variable.assign(value)
