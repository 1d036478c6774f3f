import math

import keras
import pytest
from pydantic import ValidationError

from pipelines.core.errors import UserError
from pipelines.core.optimizers import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    StepSchedule,
    TrapezoidSchedule,
)
from pipelines.training import schedules


def rates(schedule, steps, total=100, learning_rate=0.5):
    built = schedules.rate(schedule, learning_rate, total)
    return [float(keras.ops.convert_to_numpy(built(step))) for step in steps]


def test_constant_is_a_plain_number():
    assert schedules.rate(ConstantSchedule(), 0.5, 100) == 0.5


def test_a_step_schedule_takes_the_new_rate_at_the_boundary_itself():
    # As Caffe: `iter_ >= stepvalue`, counted from 0.
    schedule = StepSchedule(boundaries=(10, 20), factor=0.1)
    assert rates(schedule, [0, 9, 10, 19, 20, 99]) == pytest.approx([0.5, 0.5, 0.05, 0.05, 0.005, 0.005])


def test_exponential_falls_by_the_factor_once_in_decay_steps():
    schedule = ExponentialSchedule(factor=0.25, decay_steps=10)
    assert rates(schedule, [0, 5, 10, 20]) == pytest.approx([0.5, 0.25, 0.125, 0.03125])


def test_cosine_ends_at_zero_with_the_run():
    assert rates(CosineSchedule(), [0, 25, 50, 100]) == pytest.approx(
        [0.5, 0.25 * (1 + math.cos(math.pi / 4)), 0.25, 0], abs=1e-7
    )


def test_warm_up_rises_from_zero_and_the_cosine_still_ends_with_the_run():
    schedule = CosineSchedule(warmup_steps=20)
    assert rates(schedule, [0, 10, 20, 60, 100]) == pytest.approx([0, 0.25, 0.5, 0.25, 0], abs=1e-7)


def test_a_warm_up_may_be_a_share_of_the_run():
    by_share, by_steps = CosineSchedule(warmup=100 / 1440), CosineSchedule(warmup_steps=100)
    assert rates(by_share, range(0, 1440, 90), total=1440) == rates(by_steps, range(0, 1440, 90), total=1440)
    assert rates(by_share, [0, 1, 3], total=4) == rates(CosineSchedule(), [0, 1, 3], total=4)


def test_a_warm_up_in_both_units_is_refused():
    with pytest.raises(
        ValidationError, match=r"set warmup or warmup_steps to 0\. Received: warmup=0\.5, warmup_steps=20"
    ):
        CosineSchedule(warmup=0.5, warmup_steps=20)


def test_a_warm_up_as_long_as_the_run_is_refused():
    with pytest.raises(UserError, match="warm-up of 100 steps takes up all of a run of 100"):
        schedules.rate(CosineSchedule(warmup_steps=100), 0.5, 100)


def test_a_trapezoid_rises_stays_and_falls_to_zero_with_the_run():
    schedule = TrapezoidSchedule(warmup=0.2, decay=0.5)
    assert rates(schedule, [0, 10, 20, 35, 50, 75, 100]) == pytest.approx([0, 0.25, 0.5, 0.5, 0.5, 0.25, 0])
    assert rates(schedule, [0, 1, 5, 10], total=10) == pytest.approx([0, 0.25, 0.5, 0])


def test_a_trapezoid_whose_shares_add_up_to_one_is_one_cycle():
    assert rates(TrapezoidSchedule(warmup=0.3, decay=0.7), [15, 30, 65]) == pytest.approx([0.25, 0.5, 0.25])
    assert rates(TrapezoidSchedule(warmup=0.0, decay=1.0), [0, 50]) == pytest.approx([0.5, 0.25])
    assert rates(TrapezoidSchedule(warmup=0.0, decay=0.0), [0, 99]) == pytest.approx([0.5, 0.5])


def test_a_trapezoid_is_rebuilt_from_its_config():
    before = schedules.rate(TrapezoidSchedule(), 0.5, 100)
    after = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(before))
    assert after.get_config() == before.get_config()


def test_shares_beyond_the_run_are_refused():
    with pytest.raises(ValidationError, match=r"shares of one run\. Received: warmup=0\.5, decay=0\.6"):
        TrapezoidSchedule(warmup=0.5, decay=0.6)
