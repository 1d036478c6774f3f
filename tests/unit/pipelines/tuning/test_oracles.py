"""The algorithms, with an executor in memory."""

import random

import pytest

from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.tuning import ask_tell
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.driver import drive
from pipelines.tuning.search_state import Objective

from .in_memory import InMemory, drawn, every_fourth_fails, search_in
from .plans import ACCURACY, CHOICES, SPACE, study_plan, toy_plan


def at_random():
    chance = random.Random(0)
    return lambda executor: chance.choice([*executor.tasks])


def test_the_nets_of_a_study_take_turns(tmp_path):
    plan = study_plan(0.0004)
    nets = [trial.values["net"] for trial in search_in(tmp_path, plan, InMemory(lambda task: 0.5)).trials]
    assert nets == [net.name for net in plan.nets] * 2


def test_bayesian_optimization_learns(tmp_path, quick_bayesian):
    executor = InMemory(every_fourth_fails, 2, at_random())
    state = search_in(tmp_path, toy_plan("bayesian", trials=18), executor)
    scores = [trial.score for trial in state.trials]
    assert len(scores) == 18
    # The initial points are random.
    first, last = ([score for score in part if score is not None] for part in (scores[:8], scores[-6:]))
    assert sum(last) / len(last) > sum(first) / len(first) + 0.1


def test_rounds_of_hyperband_with_failures_continue_with_their_best(tmp_path):
    executor = InMemory(every_fourth_fails, 2, at_random())
    state = search_in(tmp_path, toy_plan("hyperband", trials=None, epochs=9), executor)
    trials = {trial.number: trial for trial in state.trials}
    assert any(trial.epochs == 9 and trial.earlier for trial in trials.values())
    for trial in trials.values():
        if trial.earlier:
            assert trials[trial.earlier].epochs < trial.epochs
            assert trials[trial.earlier].values == trial.values
    # The first bracket has nine trials of one epoch, including failures.
    assert sum(trial.epochs == 1 for trial in trials.values()) == 9


@pytest.mark.parametrize("space", [SPACE, Space(activation=("relu", "tanh")), Space(pad=(*range(12),)), CHOICES])
@pytest.mark.parametrize("epochs", [1, 2, 3, 9, 10, 27])
def test_the_trials_of_hyperband_are_known_beforehand(tmp_path, monkeypatch, epochs, space):
    monkeypatch.setattr(ask_tell, "write_text", lambda path, text: None)
    plan = toy_plan("hyperband", trials=None, epochs=epochs, space=space)
    trained = []

    def score(task):
        trained.append(task.epochs - task.values["tuner/initial_epoch"])
        if int(task.place.name) % 4 == 3:
            raise UserError("dead gates")
        return int(task.place.name) / 100

    drive(AskTell(plan, ACCURACY, tmp_path), InMemory(score))
    assert trained == plan.work


@pytest.mark.parametrize("workers", [1, 3])
def test_hyperband_halves_a_space_that_is_too_small_for_its_brackets(tmp_path, workers):
    plan = toy_plan("hyperband", trials=None, epochs=27, space=Space(activation=("relu", "tanh", "elu", "gelu")))
    executor = InMemory(lambda task: 0.9 if task.values["activation"] == "elu" else 0.5, workers)
    state = search_in(tmp_path, plan, executor)
    assert state.over
    assert sorted(trial.epochs for trial in state.trials) == [1, 1, 1, 1, 3, 3, 9, 27]
    assert [trial.values["activation"] for trial in state.trials if trial.epochs > 3] == ["elu", "elu"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("trials", [36, 50])
def test_random_search_finds_every_setting_of_a_space_of_choices(tmp_path, monkeypatch, seed, trials):
    monkeypatch.setattr(ask_tell, "write_text", lambda path, text: None)
    plan = toy_plan(trials=trials, space=CHOICES, seed=seed)
    search = AskTell(plan, ACCURACY, tmp_path)
    drive(search, InMemory(lambda task: 0.5, 2))
    assert search.over
    tried = [drawn(trial.hyperparameters.values) for trial in search.oracle.trials.values()]
    assert len(tried) == len({*map(str, tried)}) == len(plan.work) == 36


def test_bayesian_optimization_repeats_no_setting(tmp_path, quick_bayesian):
    space = CHOICES.model_copy(update={"pad": ()})
    executor = InMemory(lambda task: 0.9 if task.values["activation"] == "tanh" else 0.5)
    state = search_in(tmp_path, toy_plan("bayesian", trials=20, space=space), executor)
    assert state.over
    assert len(state.trials) == len({str(trial.values) for trial in state.trials}) == 12


def test_a_regression_is_ranked_by_its_loss(tmp_path):
    losses = iter([2.0, 1.0])
    executor = InMemory(lambda task: next(losses))
    state = search_in(tmp_path, toy_plan(trials=2), executor, Objective("val_loss", "min"))
    assert [trial.score for trial in state.ranked] == [1.0, 2.0]
