"""Ownership of a run in a bucket that several commands train."""

import os

import pytest

from pipelines.core import sync as module
from pipelines.core.errors import UserError
from pipelines.core.ownership import OWNER, claim
from pipelines.core.sync import synced
from pipelines.core.url import Url
from tests.unit.pipelines.core.runs_in_memory import contents, place, save, write


@pytest.fixture
def url():
    """A place of its own in memory."""
    return place()


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch):
    """Uploads happen when a test wants them to."""
    monkeypatch.setattr(module, "PERIOD", 1e6)


def name_of_owner(url):
    return url.with_name(OWNER.format(url.name))


def test_the_command_that_claims_a_run_last_owns_it(url):
    ended = rf"^{url} has been taken over by another command, which has ended: nothing more is uploaded from here"
    with pytest.raises(UserError, match=ended) as raised, synced(url, owned=True) as first:  # noqa: PT012
        claim(first)
        save(first, 1)
        with synced(url, owned=True) as second:
            claim(second)
            save(second, 2)
            with pytest.raises(UserError, match=f"by process {os.getpid()} on "):
                module._copies[0].push()
        assert contents(url)["checkpoint/state.npz"] == "2"
        save(first, 3)
    assert contents(url)["checkpoint/state.npz"] == "2"
    assert (first / "checkpoint" / "state.npz").read_text() == "3"
    assert str(raised.value).endswith(f"The newest files are on this machine only, in {first}.")
    assert url.parent.files() == url.files()


def test_a_run_that_is_taken_over_during_the_last_upload_keeps_its_new_owner(url, monkeypatch):
    owner, put = name_of_owner(url), Url.put

    def put_and_lose(self, path):
        put(self, path)
        owner.write_bytes(b"process 1 on b")

    with pytest.raises(UserError, match="taken over by process 1 on b: "), synced(url, owned=True) as run:  # noqa: PT012
        claim(run)
        save(run, 1)
        module._copies[0].push()
        (run / "best.keras").unlink()
        save(run, 2)
        (run / "best.keras").unlink()
        monkeypatch.setattr(Url, "put", put_and_lose)
    assert owner.read_text() == "process 1 on b"
    assert "best.keras" in contents(url)


def test_a_run_that_is_taken_over_is_reported_once(url, monkeypatch, capsys):
    monkeypatch.setattr(module, "PERIOD", 0.01)
    with pytest.raises(UserError, match="taken over"), synced(url, owned=True) as run:  # noqa: PT012
        claim(run)
        with synced(url, owned=True) as same:
            claim(same)
        # It ends with the report. Reading the output meanwhile could lose it.
        module._copies[0]._thread.join(20)
    assert capsys.readouterr().err.count("taken over") == 1


def test_commands_that_add_to_a_run_do_not_take_it_over(url):
    with synced(url, owned=True) as run:
        claim(run)
        save(run, 1)
        module._copies[0].push()
        with synced(url) as same:
            write(same / "evaluation.json", 1)
    assert {*contents(url)} == {"metrics.csv", "best.keras", "run.json", "checkpoint/state.npz", "evaluation.json"}


def test_a_command_that_is_refused_leaves_a_run_and_its_owner_alone(url):
    with synced(url, owned=True) as run:
        claim(run)
        save(run, 1)
        module._copies[0].push()
        owner = name_of_owner(url).read_bytes()
        with pytest.raises(UserError, match="refused"), synced(url, owned=True) as same:  # noqa: PT012
            save(same, 2)
            module._copies[1].push()
            raise UserError("refused")
        assert name_of_owner(url).read_bytes() == owner
        assert contents(url)["run.json"] == "1"
        save(run, 3)
    assert contents(url)["run.json"] == "3"
    assert not name_of_owner(url).exists()


def test_a_run_is_claimed_as_its_owner_has_left_it(url):
    ended = pytest.raises(UserError, match="taken over by another command, which has ended")
    with ended, synced(url, owned=True) as run:
        claim(run)
        save(run, 1)
        module._copies[0].push()
        with synced(url, owned=True) as same:
            save(run, 2)
            (run / "best.keras").unlink()
            for _ in range(2):
                module._copies[0].push()
            claim(same)
            assert (same / "checkpoint" / "state.npz").read_text() == "2"
            assert (same / "metrics.csv").read_text() == "1\n2\n"
            assert not (same / "best.keras").exists()
            assert len({path.stat().st_mtime_ns for path in same.iterdir() if path.is_file()}) == 1
    assert contents(url)["checkpoint/state.npz"] == "2"


def test_a_run_that_another_command_has_created_meanwhile_is_not_claimed(url):
    created = pytest.raises(UserError, match=f"^another command has created {url} since")
    with created, synced(url, owned=True) as late:
        with synced(url, owned=True) as run:
            claim(run)
            save(run, 1)
        claim(late)
    assert contents(url)["run.json"] == "1"
    assert not name_of_owner(url).exists()


def test_a_run_that_is_taken_over_during_the_last_removal_keeps_its_new_owner(url, monkeypatch):
    remove = module._Sync._remove

    def remove_and_lose(self, names):
        remove(self, names)
        if names:
            name_of_owner(url).write_bytes(b"process 1 on b")

    with pytest.raises(UserError, match="taken over by process 1 on b: "), synced(url, owned=True) as run:  # noqa: PT012
        claim(run)
        save(run, 1)
        module._copies[0].push()
        (run / "best.keras").unlink()
        monkeypatch.setattr(module._Sync, "_remove", remove_and_lose)
    assert name_of_owner(url).read_text() == "process 1 on b"
