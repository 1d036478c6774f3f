"""Workers and chiefs that are lost, in a simulated search."""

import json

import pytest

from pipelines.tuning.distributed import fault_tolerance
from pipelines.tuning.distributed.fault_tolerance import ATTEMPTS, LEASE

from ..plans import toy_plan
from .simulated import Search, drawn


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


def test_a_restarted_worker_gets_its_trial_back(search):
    first = search.ask("a")
    assert search.ask("a").trial_id == first.trial_id
    assert search.oracle.leases[first.trial_id].lost == 1


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


def test_a_slow_worker_gets_its_trial_back_unless_another_took_it(search):
    trial = search.ask("a")
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.oracle.get_trial(trial.trial_id).status == "RUNNING"
    assert search.oracle.ongoing_trials["a"].trial_id == trial.trial_id
    assert search.oracle.leases[trial.trial_id].lost == 0
    search.time.now += LEASE + 1
    search.oracle.expire()
    assert search.ask("b").trial_id == trial.trial_id
    # Both run it now. The first result counts, and the other worker is notified.
    search.finish(trial, 0.8)
    assert search.oracle.get_trial(trial.trial_id).status == "COMPLETED"
    search.finish(trial, 0.1)
    assert search.state().trials[0].score == 0.8
    assert search.ask("b").trial_id != trial.trial_id


def test_a_chief_that_slept_blames_no_worker(search):
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


def test_no_worker_is_dismissed_while_a_trial_runs(search):
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


def test_a_kill_of_all_processes_counts_against_no_trial(search):
    trial = search.ask("a")
    for _ in range(2 * ATTEMPTS):
        search.restart()
        assert search.ask("a").trial_id == trial.trial_id
    assert search.oracle.leases[trial.trial_id].lost == 0


def test_a_chief_killed_between_two_writes_resumes(search, monkeypatch):
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


def test_a_closed_search_dismisses_all_workers_and_can_be_resumed(search):
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
        lease = search.oracle.leases[trial.trial_id]
        assert (lease.lost, lease.seconds) == (0, 10.0 * closing)
        search.restart()
        assert search.ask("a").trial_id == trial.trial_id


def test_a_worker_of_another_search_changes_nothing(search):
    trial = search.ask("a")
    foreign = type(trial)(trial.hyperparameters.copy(), "0077", "COMPLETED")
    assert search.oracle.get_trial("0077").status == "INVALID"
    search.oracle.update_trial("0077", {"val_accuracy": 1.0})
    search.oracle.end_trial(foreign)
    assert [one.number for one in search.state().trials] == [trial.trial_id]


def test_an_error_is_reported_and_blocks_no_worker(search, monkeypatch):
    def full(path, text):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fault_tolerance, "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        search.ask("a")
    assert isinstance(search.oracle.broken, OSError)
    assert search.oracle.turn.acquire(blocking=False)


def test_a_damaged_state_is_reported(search):
    search.ask("a")
    state = json.loads(search.oracle.file.read_text())
    del state["clock"]
    search.oracle.file.write_text(json.dumps(state))
    with pytest.raises(Exception, match=r"oracle\.json is damaged"):
        search.state()
