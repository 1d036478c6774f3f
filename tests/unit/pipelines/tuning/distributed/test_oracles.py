"""The algorithms, in a simulated search."""

import random
from types import SimpleNamespace

import pytest

from pipelines.tuning.distributed import fault_tolerance
from pipelines.tuning.search_state import Objective

from ..plans import study_plan, toy_plan
from .simulated import Search, drawn


def test_the_nets_of_a_study_take_turns(tmp_path):
    plan = study_plan(0.0004)
    search = Search(tmp_path, plan)
    while (trial := search.ask("a")).status == "RUNNING":
        search.finish(trial)
    nets = [trial.values["net"] for trial in search.state().trials]
    assert nets == [net.name for net in plan.nets] * 2


def score_of(trial):
    values = drawn(trial)
    return 1 - abs(values["transform_bias"] + 3) / 10


def run_to_its_end(search, workers=2, restarts=False):
    """Runs workers in random turns, with every fourth trial failing; returns the sampled values in order."""
    chance = random.Random(0)
    running = {}
    for _ in range(2000):
        worker = f"w{chance.randrange(workers)}"
        if worker in running:
            trial = running.pop(worker)
            failed = int(trial.trial_id) % 4 == 3
            search.finish(trial, score_of(trial), *(("FAILED", "dead gates") if failed else ()))
        elif (trial := search.ask(worker)).status == "RUNNING":
            running[worker] = trial
        elif trial.status == "STOPPED":
            return [(trial.number, trial.values, trial.epochs) for trial in search.state().trials]
        if restarts:
            search.restart()
    raise AssertionError("the search does not end")


@pytest.mark.parametrize("algorithm", ["random", "hyperband"])
def test_a_chief_that_is_killed_repeatedly_draws_the_same(tmp_path, algorithm):
    plan = toy_plan(algorithm, trials=None if algorithm == "hyperband" else 12, epochs=9)
    whole = run_to_its_end(Search(tmp_path / "whole", plan))
    assert run_to_its_end(Search(tmp_path / "killed", plan), restarts=True) == whole


def test_bayesian_optimization_learns_and_survives(tmp_path, monkeypatch):
    # Uses the best of KerasTuner's fifty starting points: refining them all takes a hundred times as long.
    monkeypatch.setattr(
        "keras_tuner.src.tuners.bayesian.scipy",
        SimpleNamespace(optimize=SimpleNamespace(minimize=lambda score, x0, **_: SimpleNamespace(fun=score(x0), x=x0))),
    )
    search = Search(tmp_path, toy_plan("bayesian", trials=18))
    run_to_its_end(search, restarts=True)
    scores = [trial.score for trial in search.state().trials]
    assert len(scores) == 18
    # The initial points are random.
    first, last = ([score for score in part if score is not None] for part in (scores[:8], scores[-6:]))
    assert sum(last) / len(last) > sum(first) / len(first) + 0.1


def test_rounds_of_hyperband_with_failures_continue_with_their_best(tmp_path):
    search = Search(tmp_path, toy_plan("hyperband", trials=None, epochs=9))
    run_to_its_end(search)
    trials = {trial.number: trial for trial in search.state().trials}
    assert any(trial.epochs == 9 and trial.earlier for trial in trials.values())
    for trial in trials.values():
        if trial.earlier:
            assert trials[trial.earlier].epochs < trial.epochs
            assert trials[trial.earlier].values == trial.values
    # The first bracket has nine trials of one epoch, including failures.
    assert sum(trial.epochs == 1 for trial in trials.values()) == 9


@pytest.mark.parametrize("epochs", [1, 2, 3, 9, 10, 27])
def test_the_trials_of_hyperband_are_known_beforehand(tmp_path, monkeypatch, epochs):
    monkeypatch.setattr(fault_tolerance, "write_text", lambda path, text: None)
    plan = toy_plan("hyperband", trials=None, epochs=epochs)
    search = Search(tmp_path, plan)
    trained = []
    while (trial := search.ask("a")).status == "RUNNING":
        values = trial.hyperparameters.values
        trained.append(values["tuner/epochs"] - values["tuner/initial_epoch"])
        search.finish(trial, score_of(trial))
    assert trained == plan.work


def test_a_regression_is_ranked_by_its_loss(tmp_path):
    search = Search(tmp_path, toy_plan(trials=2), Objective("val_loss", "min"))
    search.finish(search.ask("a"), 2.0)
    search.finish(search.ask("a"), 1.0)
    assert [trial.score for trial in search.state().ranked] == [1.0, 2.0]
