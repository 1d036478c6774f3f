"""The learning rate over steps, as Keras's own schedules."""

from typing import Any

import keras

from pipelines.core.config import Schedule
from pipelines.core.errors import UserError


def build(schedule: Schedule, learning_rate: float, steps: int) -> Any:
    """What a Keras optimiser takes as its learning rate.

    Args:
        schedule: kind and numbers.
        learning_rate: at the start; with warm-up, at its end.
        steps: of the whole run; the cosine ends there.

    Returns:
        A number, or a `keras.optimizers.schedules.LearningRateSchedule`.

    Raises:
        UserError: if the warm-up takes all steps.

    Example:
        keras.optimizers.SGD(build(config.schedule, 0.01, steps=180_000))
    """
    if schedule.kind == "step":
        # Keras still takes the old rate at the boundary itself; Caffe, and so our recipes, take the new one.
        return keras.optimizers.schedules.PiecewiseConstantDecay(
            [boundary - 1 for boundary in schedule.boundaries],
            [learning_rate * schedule.factor**power for power in range(len(schedule.boundaries) + 1)],
        )
    if schedule.kind == "exponential":
        return keras.optimizers.schedules.ExponentialDecay(learning_rate, schedule.decay_steps, schedule.factor)
    if schedule.kind == "cosine":
        if schedule.warmup_steps >= steps:
            raise UserError(
                f"a warm-up of {schedule.warmup_steps} steps leaves nothing of a run of {steps} steps. "
                "Lower --schedule.warmup-steps, or train for more epochs."
            )
        if not schedule.warmup_steps:
            return keras.optimizers.schedules.CosineDecay(learning_rate, steps)
        return keras.optimizers.schedules.CosineDecay(
            initial_learning_rate=0.0,
            decay_steps=steps - schedule.warmup_steps,
            warmup_target=learning_rate,
            warmup_steps=schedule.warmup_steps,
        )
    return learning_rate
