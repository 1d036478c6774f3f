import keras
import pytest

from pipelines import recipes
from pipelines.core.frozen import flat
from pipelines.recipes.provenance import tags
from pipelines.recipes.short import EPOCHS, RISE, beginning, one_cycle
from pipelines.training import schedules

NAMES = ("cifar10_19", "cifar100_19", "fitnet_a", "fitnet_b", "fitnet_c")


@pytest.mark.parametrize("name", NAMES)
def test_one_cycle_is_the_same_net_trained_by_numbers_of_ours(name):
    short, full = one_cycle(recipes.get(name)), recipes.get(name)
    values, others = flat(short.config), flat(full.config)
    assert {field for field in {*values, *others} if values.get(field) != others.get(field)} == {
        "schedule.kind",
        "schedule.boundaries",
        "schedule.factor",
        "schedule.warmup",
        "schedule.warmup_steps",
        "epochs",
    }
    assert set(tags(short).values()) == {"assumed"}
    assert short.published == "none"


def test_its_rate_rises_once_and_falls_to_nothing():
    config = one_cycle(recipes.get("cifar10_19")).config
    steps = EPOCHS * 500
    rate = schedules.rate(config.schedule, config.optimizer.learning_rate, steps)
    rates = [float(keras.ops.convert_to_numpy(rate(step))) for step in range(0, steps + 1, 100)]
    top = RISE // 100
    assert rates[top] == pytest.approx(config.optimizer.learning_rate)
    assert rates[:top] == sorted(rates[:top])
    assert rates[top:] == sorted(rates[top:], reverse=True)
    assert (rates[0], rates[-1]) == pytest.approx((0, 0), abs=1e-7)


def test_the_beginning_is_that_of_the_full_training():
    short, full = beginning(recipes.get("cifar10_19")), recipes.get("cifar10_19")
    values, others = flat(short.config), flat(full.config)
    assert {field for field in values if values[field] != others[field]} == {"epochs"}
    assert min(short.config.schedule.boundaries) > EPOCHS * 500
    changed = {field for field in tags(full) if tags(short)[field] != tags(full)[field]}
    assert changed == {"epochs"}
    assert tags(short)["epochs"] == "assumed"
