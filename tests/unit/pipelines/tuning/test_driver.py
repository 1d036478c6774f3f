"""The driver, with an executor in memory."""

import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.core.errors import UserError
from pipelines.tuning.ask_tell import AskTell
from pipelines.tuning.driver import drive, opened
from pipelines.tuning.search_state import Objective, read
from tests.executors import Deserted

from .in_memory import InMemory, KilledError, every_fourth_fails, score_of, search_in
from .plans import ACCURACY, toy_plan


def plan_of(algorithm):
    return toy_plan(algorithm, trials=None if algorithm == "hyperband" else 8, epochs=3)


def results(state):
    return [(trial.values, trial.epochs, trial.status, trial.score, trial.reason) for trial in state.trials]


class Chaos:
    """Chooses the trial that ends next, and the room for others; kills the driver up to five times."""

    def __init__(self, chance):
        self.chance, self.kills, self.pauses = chance, 5, 20

    def choose(self, executor):
        running, step = [*executor.tasks], self.chance.randrange(6)
        executor.workers = max(len(running), self.chance.randrange(5))
        if step == 0 and self.kills:
            self.kills -= 1
            raise KilledError
        if step == 1 and self.pauses:
            self.pauses -= 1
            return None
        return self.chance.choice(running)


@pytest.mark.parametrize("algorithm", ["random", "hyperband"])
@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=10)
def test_every_trial_ends_once_in_whatever_order_and_however_often_the_driver_is_killed(algorithm, chance):
    plan, chaos, ended = plan_of(algorithm), Chaos(chance), {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        while not (state := read(folder)) or not state.over:
            executor = InMemory(every_fourth_fails, 2, chaos.choose)
            with suppress(KilledError):
                search_in(folder, plan, executor)
            # No trial that has ended is started again, or changes.
            assert not {f"trial {number}" for number in ended} & set(executor.started)
            after = {trial.number: trial for trial in read(folder).trials if trial.over}
            assert after.items() >= ended.items()
            ended = after
        assert len(ended) == len(state.trials) == len(plan.work)
        if algorithm == "random":
            assert results(state) == results(search_in(folder / "calm", plan, InMemory(every_fourth_fails)))


@pytest.mark.parametrize("algorithm", ["random", "hyperband", "bayesian"])
def test_one_worker_draws_the_same_however_often_the_driver_is_killed(tmp_path, algorithm, quick_bayesian):
    plan, chance = plan_of(algorithm), random.Random(0)

    def choose(executor):
        if chance.random() < 0.5:
            raise KilledError
        return next(iter(executor.tasks))

    while not (state := read(tmp_path / "killed")) or not state.over:
        with suppress(KilledError):
            search_in(tmp_path / "killed", plan, InMemory(score_of, choose=choose))
    assert results(state) == results(search_in(tmp_path / "calm", plan, InMemory(score_of)))


def test_a_deadline_leaves_the_trials_that_run_for_the_next_command(tmp_path):
    search = AskTell(plan_of("random"), ACCURACY, tmp_path)

    def choose(executor):
        time.sleep(0.01)

    executor = InMemory(score_of, 2, choose)
    drive(search, executor, ends=time.time() + 0.02)
    search.pause()
    state = read(tmp_path)
    assert not state.over
    assert [trial.status for trial in state.trials] == ["running", "running"]
    assert all(trial.seconds > 0 for trial in state.trials)
    again = InMemory(score_of, 2)
    assert search_in(tmp_path, plan_of("random"), again).over
    assert again.started[:2] == ["trial 0", "trial 1"]


def test_the_trials_of_a_hyperband_chain_share_a_run_directory(tmp_path):
    paths = {}

    def score(task):
        paths.setdefault(task.place, []).append(task.epochs)
        return score_of(task)

    search_in(tmp_path, plan_of("hyperband"), InMemory(score))
    assert [1, 3] in paths.values()
    assert all(path.parent == tmp_path / "trials" for path in paths)


@pytest.mark.parametrize("algorithm", ["random", "hyperband"])
def test_no_trial_keeps_weights_that_it_no_longer_needs(tmp_path, algorithm):
    failed = set()

    def score(task):
        assert not any(list(path.rglob("*.npz")) for path in failed)
        (task.place / "checkpoint").mkdir(parents=True, exist_ok=True)
        for name in ("checkpoint/state.npz", "best.keras", "initial.keras", "metrics.csv"):
            (task.place / name).touch()
        if int(task.place.name) == 1:
            failed.add(task.place)
            raise UserError("dead gates")
        return score_of(task)

    search_in(tmp_path, plan_of(algorithm), InMemory(score))
    assert failed
    assert {path.name for path in tmp_path.glob("trials/*/*")} == {"metrics.csv"}


def test_a_setting_that_hyperband_may_promote_keeps_its_weights(tmp_path):
    def score(task):
        task.place.mkdir(parents=True, exist_ok=True)
        # It continues from the weights of its first rung.
        assert task.epochs < 3 or int(task.place.name) > 2 or (task.place / "best.keras").exists()
        (task.place / "best.keras").touch()
        return score_of(task)

    # A file of the system, which is no trial.
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / ".DS_Store").touch()
    assert search_in(tmp_path, plan_of("hyperband"), InMemory(score)).over


def test_paths_are_absolute_because_other_machines_have_other_working_directories(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    seen = []
    search = AskTell(plan_of("random"), ACCURACY, Path("search"))
    drive(search, InMemory(lambda task: seen.append(task) or 0.5), data_dir=Path("~/data"))
    assert {task.place.parent for task in seen} == {tmp_path / "search" / "trials"}
    assert {task.data_dir for task in seen} == {tmp_path / "data"}


def test_a_search_with_the_objective_of_an_earlier_version_is_refused(tmp_path, monkeypatch):
    search = AskTell(plan_of("random"), Objective("val_loss", "min"), tmp_path)
    search.ask()
    search.pause()
    monkeypatch.setattr("pipelines.tuning.trials.objective", lambda *_: Objective("val_cross_entropy", "min"))
    with pytest.raises(
        UserError, match=r"minimizes the validation loss, and this version the validation cross-entropy.*another folder"
    ):
        opened(plan_of("random"), tmp_path, None)
    monkeypatch.setattr("pipelines.tuning.trials.objective", lambda *_: Objective("val_loss", "min"))
    assert opened(plan_of("random"), tmp_path, None).waiting == ["0"]


def test_failures_do_not_end_a_search(tmp_path):
    def diverges(task):
        raise UserError("the loss is no longer finite")

    state = search_in(tmp_path, plan_of("random"), InMemory(diverges))
    assert state.over
    assert {trial.reason for trial in state.trials} == {"the loss is no longer finite"}


def test_a_search_whose_last_trials_have_no_machine_left_ends(tmp_path):
    executor = Deserted(capacity=9)
    with pytest.raises(UserError, match="no machine is left"):
        search_in(tmp_path, plan_of("random"), executor)
    # No trial was left to ask for.
    assert len(executor.keys) == 8
