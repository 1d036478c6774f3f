"""Oracles without processes: workers are names, and the test sets the time."""

import json
import random
from types import SimpleNamespace

import pytest

from pipelines.tuning.distributed import fault_tolerance
from pipelines.tuning.distributed.fault_tolerance import ATTEMPTS, LEASE, REASON
from pipelines.tuning.distributed.oracles import make
from pipelines.tuning.search_state import Objective, read

from ..plans import ACCURACY, study_plan, toy_plan


class Time:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Search:
    """A chief that can be restarted, and workers that can be lost."""

    def __init__(self, folder, plan, objective=ACCURACY):
        self.folder, self.plan, self.objective, self.time = folder, plan, objective, Time()
        self.restart()

    def restart(self):
        self.oracle = make(self.plan, self.objective)
        self.oracle._set_project_dir(str(self.folder), "kerastuner")
        self.oracle.endure(self.plan, self.folder, self.time)

    def ask(self, worker):
        return self.oracle.create_trial(worker)

    def finish(self, trial, score=0.5, status="COMPLETED", reason=None):
        ended = type(trial)(trial.hyperparameters.copy(), trial.trial_id, status)
        if status == "COMPLETED":
            self.oracle.update_trial(trial.trial_id, {self.objective.name: score})
        elif reason:
            ended.hyperparameters.values[REASON] = reason
        self.oracle.end_trial(ended)

    def state(self):
        return read(self.folder)


def drawn(trial):
    return {name: value for name, value in trial.hyperparameters.values.items() if "/" not in name}


@pytest.fixture
def search(tmp_path):
    return Search(tmp_path, toy_plan(trials=3))


def test_a_search_from_its_start_to_its_end(search):
    for score in (0.5, 0.9, 0.7):
        search.finish(search.ask("a"), score)
        assert not search.state().over
    assert search.ask("a").status == "STOPPED"
    state = search.state()
    assert state.over
    assert [trial.score for trial in state.ranked] == [0.9, 0.7, 0.5]
    assert search.oracle.tuner_ids == set()


def test_a_worker_that_was_started_again_has_its_trial_again(search):
    first = search.ask("a")
    assert search.ask("a").trial_id == first.trial_id
    assert search.oracle.clock[first.trial_id].lost == 1


def test_the_trial_of_a_lost_worker_goes_to_another(search):
    first = search.ask("a")
    search.time.now += LEASE + 1
    search.ask("b")
    search.oracle.expire()
    assert search.state().trials[0].status == "waiting"
    again = search.ask("c")
    assert (again.trial_id, drawn(again)) == (first.trial_id, drawn(first))
    assert search.state().trials[0].worker == "c"


def test_a_sign_of_life_keeps_a_trial(search):
    trial = search.ask("a")
    for _ in range(5):
        search.time.now += LEASE - 1
        assert search.oracle.get_trial(trial.trial_id).status == "RUNNING"
        search.oracle.expire()
    assert search.state().trials[0].status == "running"


def test_a_slow_worker_has_its_trial_back_unless_another_took_it(search):
    trial = search.ask("a")
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.oracle.get_trial(trial.trial_id).status == "RUNNING"
    assert search.oracle.ongoing_trials["a"].trial_id == trial.trial_id
    assert search.oracle.clock[trial.trial_id].lost == 0
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.ask("b").trial_id == trial.trial_id
    # Both run it now. The first result counts, and the other worker is notified.
    search.finish(trial, 0.8)
    assert search.oracle.get_trial(trial.trial_id).status == "COMPLETED"
    search.finish(trial, 0.1)
    assert search.state().trials[0].score == 0.8
    assert search.ask("b").trial_id != trial.trial_id


def test_a_chief_that_slept_blames_nobody(search):
    trial = search.ask("a")
    search.time.now += 10 * LEASE
    search.oracle.awake()
    search.oracle.expire()
    assert search.state().trials[0].status == "running"
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.ask("b").trial_id == trial.trial_id


def test_a_trial_that_kills_its_workers_is_given_up(search):
    trial = search.ask("a")
    for _ in range(ATTEMPTS):
        another = search.ask("a")
    assert another.trial_id != trial.trial_id
    state = search.state()
    assert state.trials[0].status == "failed"
    assert state.trials[0].reason == f"each of {ATTEMPTS} workers that ran it died or hung"


def test_nobody_is_sent_home_while_a_trial_runs(search):
    trials = [search.ask(name) for name in "abc"]
    search.finish(trials[0])
    assert search.ask("a").status == "IDLE"
    search.time.now += LEASE + 1
    assert search.ask("a").status == "IDLE"
    search.oracle.expire()
    assert search.ask("a").trial_id == trials[1].trial_id


def test_the_chief_forgets_workers_that_left(search):
    search.finish(search.ask("a"))
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.oracle.tuner_ids == set()


def test_workers_outlive_their_chief(search):
    trial = search.ask("a")
    search.restart()
    assert search.oracle.get_trial(trial.trial_id).status == "RUNNING"
    assert search.ask("b").trial_id != trial.trial_id
    search.finish(trial, 0.6)
    assert search.state().trials[0].score == 0.6


def test_when_everything_was_killed_it_is_no_trials_fault(search):
    trial = search.ask("a")
    for _ in range(2 * ATTEMPTS):
        search.restart()
        assert search.ask("a").trial_id == trial.trial_id
    assert search.oracle.clock[trial.trial_id].lost == 0


def test_a_chief_killed_between_two_writes_goes_on(search, monkeypatch):
    # KerasTuner saves before it takes an ended trial from its worker: every saved state must be consistent.
    versions = []
    write = fault_tolerance.write_text
    monkeypatch.setattr(fault_tolerance, "write_text", lambda path, text: (versions.append(text), write(path, text)))
    search.finish(search.ask("a"))
    search.finish(search.ask("a"), status="FAILED", reason="dead gates")
    search.ask("b")
    monkeypatch.setattr(fault_tolerance, "write_text", write)
    assert len(versions) >= 5
    for version in versions:
        search.oracle.file.write_text(version)
        search.restart()
        ids = set()
        while (trial := search.ask("a")).status == "RUNNING":
            assert trial.trial_id not in ids
            ids.add(trial.trial_id)
            search.finish(trial)
        assert trial.status in ("STOPPED", "IDLE")


def test_failures_do_not_end_a_search(tmp_path):
    search = Search(tmp_path, toy_plan(trials=10))
    for _ in range(10):
        search.finish(search.ask("a"), status="FAILED", reason="the loss is no longer finite")
    assert search.ask("a").status == "STOPPED"
    assert {trial.reason for trial in search.state().trials} == {"the loss is no longer finite"}


def test_a_closed_search_sends_everybody_home_and_can_be_taken_up(search):
    trial = search.ask("a")
    search.oracle.close()
    assert search.oracle.get_trial(trial.trial_id).status == "STOPPED"
    assert search.ask("a").status == search.ask("b").status == "STOPPED"
    assert search.oracle.tuner_ids == set()
    search.restart()
    assert search.ask("a").trial_id == trial.trial_id


def test_a_deadline_blames_no_worker(search):
    trial = search.ask("a")
    for closing in (1, 2, 3, 4):
        search.time.now += 10
        search.oracle.close()
        # The worker learns of it at its next heartbeat, and leaves.
        assert search.oracle.get_trial(trial.trial_id).status == "STOPPED"
        assert search.oracle.tuner_ids == set()
        search.time.now += LEASE + 1
        search.oracle.expire()
        clock = search.oracle.clock[trial.trial_id]
        assert (clock.lost, clock.seconds) == (0, 10.0 * closing)
        search.restart()
        assert search.ask("a").trial_id == trial.trial_id


def test_a_worker_of_another_search_changes_nothing(search):
    trial = search.ask("a")
    foreign = type(trial)(trial.hyperparameters.copy(), "0077", "COMPLETED")
    assert search.oracle.get_trial("0077").status == "INVALID"
    search.oracle.update_trial("0077", {"val_accuracy": 1.0})
    search.oracle.end_trial(foreign)
    assert [one.number for one in search.state().trials] == [trial.trial_id]


def test_an_error_is_seen_and_blocks_nobody(search, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fault_tolerance, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        search.ask("a")
    assert isinstance(search.oracle.broken, OSError)
    assert search.oracle.turn.acquire(blocking=False)


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
def test_a_chief_that_is_killed_all_the_time_draws_the_same(tmp_path, algorithm):
    plan = toy_plan(algorithm, trials=None if algorithm == "hyperband" else 12, epochs=9)
    whole = run_to_its_end(Search(tmp_path / "whole", plan))
    assert run_to_its_end(Search(tmp_path / "killed", plan), restarts=True) == whole


def test_bayesian_optimisation_learns_and_survives(tmp_path, monkeypatch):
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


def test_rounds_of_hyperband_with_failures_go_on_with_their_best(tmp_path):
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
def test_what_hyperband_will_train_is_known_beforehand(tmp_path, monkeypatch, epochs):
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


def test_a_damaged_state_is_reported(search):
    search.ask("a")
    state = json.loads(search.oracle.file.read_text())
    del state["clock"]
    search.oracle.file.write_text(json.dumps(state))
    with pytest.raises(Exception, match=r"oracle\.json is damaged"):
        search.state()
