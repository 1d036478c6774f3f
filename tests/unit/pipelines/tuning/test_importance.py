import numpy as np
import pytest

from pipelines.core.config import Space
from pipelines.tuning.importance import FEWEST, importance

from .plans import study_plan, toy_plan, toy_state, toy_trial
from .searches import hyperband_state, searched_state


def test_the_hyperparameter_that_decides_is_the_most_important():
    found = importance(toy_plan(), searched_state(60))
    means = dict(zip(found.names, found.added.mean(axis=1), strict=True))
    assert max(means, key=means.get) == "transform_bias"
    assert means["transform_bias"] > 10 * max(means["learning_rate"], means["activation"])
    assert 0.7 < found.r2 <= 1


def test_a_hyperparameter_that_makes_trials_fail_is_important_too():
    state = searched_state(60, score=lambda values: 0.9, failed=())
    trials = [
        toy_trial(number, None, "failed", reason="dead gates", **trial.values)
        if trial.values["learning_rate"] > 0.1
        else toy_trial(number, 0.9 - 0.001 * number, **trial.values)
        for number, trial in enumerate(state.trials)
    ]
    found = importance(toy_plan(), toy_state(*trials))
    assert found.names[int(found.added.mean(axis=1).argmax())] == "learning_rate"
    assert found.settings == 60


@pytest.mark.parametrize("state", [searched_state(FEWEST - 1), searched_state(30, score=lambda values: 0.5)])
def test_too_little_is_not_measured(state):
    assert importance(toy_plan(), state) is None


def test_one_hyperparameter_has_nothing_to_be_compared_with():
    assert importance(toy_plan(space=Space(transform_bias=(-10.0, -1.0))), searched_state(30)) is None


def test_a_setting_counts_once_and_its_epochs_matter():
    state = hyperband_state(60, lambda values, epochs: 0.5 + 0.1 * epochs + 0.001 * values["transform_bias"])
    found = importance(toy_plan("hyperband", None, epochs=3), state)
    assert found.settings == 60
    assert found.names[int(found.added.mean(axis=1).argmax())] == "epochs"


def test_a_setting_that_a_search_repeated_counts_once():
    state = searched_state(FEWEST)
    repeated = toy_state(*state.trials, *(toy_trial(99, trial.score, **trial.values) for trial in state.trials[:9]))
    assert importance(toy_plan(), repeated).settings == FEWEST
    assert importance(toy_plan(), toy_state(*repeated.trials[1:9], *repeated.trials[10:])) is None


def test_noise_is_not_important():
    random = np.random.default_rng(0)
    found = importance(toy_plan(), searched_state(60, score=lambda values: random.normal()))
    assert found.r2 < 0.2
    assert np.abs(found.added.mean(axis=1)).max() < 0.3 * found.error


def test_the_gate_bias_drawn_for_a_plain_net_does_not_matter():
    plan = study_plan(0.01)
    found = importance(
        plan,
        searched_state(
            80, plan=plan, score=lambda values: values["transform_bias"] if "plain" in values["net"] else -11.0
        ),
    )
    means = dict(zip(found.names, found.added.mean(axis=1), strict=True))
    assert means["net"] > 0.5
    assert abs(means["transform_bias"]) < 0.1
