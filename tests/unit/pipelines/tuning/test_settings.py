from dataclasses import replace

import numpy as np

from pipelines.tuning import settings

from .plans import study_plan, toy_plan, toy_trial
from .searches import hyperband_state


def test_a_setting_counts_once_by_its_longest_trial():
    trials = settings.longest(hyperband_state(9).trials)
    assert [trial.number for trial in trials] == ["1", "2", "4", "5", "7", "8", "9", "10", "11"]
    plan = toy_plan("hyperband", None, epochs=3)
    assert settings.names(plan, trials)[-1] == "epochs"
    assert settings.choices(plan, trials, "epochs") == [1, 3]
    assert settings.column(plan, trials, "epochs").tolist() == [0] * 6 + [1] * 3


def test_epochs_are_named_only_where_they_differ():
    assert "epochs" not in settings.names(toy_plan(), [toy_trial(0, 0.5), toy_trial(1, 0.6)])
    longer = replace(toy_trial(1, 0.6), epochs=3)
    assert "epochs" in settings.names(toy_plan(epochs=1), [toy_trial(0, 0.5), longer])


def test_the_gate_bias_drawn_for_a_plain_net_is_no_value():
    plan = study_plan()
    trials = [toy_trial(0, 0.5, net="plain-10"), toy_trial(1, 0.6, net="highway-10", transform_bias=-4.0)]
    bias = settings.column(plan, trials, "transform_bias")
    assert np.isnan(bias[0])
    assert bias[1] == -4
