"""Learning-rate schedules over the steps of a run."""

from typing import Any, assert_never

import keras
from keras import ops

from pipelines.core.errors import UserError
from pipelines.core.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    Schedule,
    StepSchedule,
    TrapezoidSchedule,
)


@keras.saving.register_keras_serializable(package="highway_pipelines")
class Trapezoid(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly from zero, stays, and falls linearly to zero at the end of the run.

    Args:
        peak: the learning rate between rise and fall.
        steps: steps of the run.
        warmup: share of the steps over which it rises.
        decay: share of the steps over which it falls.

    Example:
        Trapezoid(0.4, steps=1000, warmup=0.2, decay=0.8)(600)  # 0.2
    """

    def __init__(self, peak: float, steps: int, warmup: float, decay: float) -> None:
        super().__init__()
        self.peak, self.steps, self.warmup, self.decay = peak, steps, warmup, decay

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate of a step, counted from 0."""
        share = ops.cast(step, "float32") / self.steps
        rise = share / self.warmup if self.warmup else 1.0
        fall = (1.0 - share) / self.decay if self.decay else 1.0
        return self.peak * ops.clip(ops.minimum(rise, fall), 0.0, 1.0)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments of the schedule."""
        return {"peak": self.peak, "steps": self.steps, "warmup": self.warmup, "decay": self.decay}


def rate(schedule: Schedule, learning_rate: float, steps: int) -> Any:
    """Builds the learning rate of a Keras optimizer.

    Args:
        schedule: the schedule and its parameters.
        learning_rate: the initial learning rate; with warm-up, the rate at its end.
        steps: steps of the whole run, at the end of which the cosine and the trapezoid reach zero.

    Returns:
        A number, or a `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        UserError: the warm-up takes all steps.

    Example:
        optimizers.build(config.optimizer, rate(config.schedule, 0.01, steps=180_000))
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
        case CosineSchedule():
            warmup = schedule.warmup_steps or round(schedule.warmup * steps)
            if not warmup:
                return keras.optimizers.schedules.CosineDecay(learning_rate, steps)
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
        case TrapezoidSchedule():
            return Trapezoid(learning_rate, steps, warmup=schedule.warmup, decay=schedule.decay)
        case _:
            assert_never(schedule)
