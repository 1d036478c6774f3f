"""Copies of runs and files in a bucket, on fsspec's file system in memory."""

import errno
import itertools
import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

from pipelines.core import sync as module
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import JobError
from pipelines.core.sync import fetched, place_of, refresh, synced
from pipelines.core.url import Url
from serving import stores
from tests.dying_store import dying
from tests.unit.pipelines.core.runs_in_memory import contents, place, save, write


@pytest.fixture
def url():
    """A place of its own in memory."""
    return place()


@pytest.fixture(autouse=True)
def _by_hand(monkeypatch):
    """Uploads happen when a test wants them to."""
    monkeypatch.setattr(module, "PERIOD", 1e6)


@pytest.fixture
def push(monkeypatch):
    """A function that uploads the changes of the folder that was synced last."""
    made, start = [], module._Sync.start

    def noted(self):
        made.append(self)
        start(self)

    def push():
        made[-1].push()

    monkeypatch.setattr(module._Sync, "start", noted)
    return push


def test_a_path_stays_what_it_is(tmp_path):
    with synced(tmp_path / "run") as run:
        assert run == tmp_path / "run"
    with fetched(tmp_path / "file") as path:
        assert path == tmp_path / "file"


def test_a_run_is_uploaded_at_the_end_and_downloaded_at_the_start(url):
    with synced(url) as run:
        assert run.name == "x"
        save(run, 1)
        (run / ".state-1.npz").touch()
    assert contents(url) == {"metrics.csv": "1\n", "best.keras": "1", "run.json": "1", "checkpoint/state.npz": "1"}
    assert not run.parent.exists()
    with synced(url) as run:
        assert (run / "metrics.csv").read_text() == "1\n"
        save(run, 2)
        (run / "best.keras").unlink()
    assert contents(url) == {
        **{"metrics.csv": "1\n2\n", "run.json": "2"},
        **{"checkpoint/state.npz": "2", "checkpoint/previous.npz": "1"},
    }


def test_nothing_is_uploaded_unless_it_has_changed(url, monkeypatch):
    with synced(url) as run:
        save(run, 1)
    monkeypatch.setattr(Url, "put", None)
    with synced(url):
        pass


def test_the_previous_checkpoint_is_not_uploaded_again(url, push, monkeypatch):
    sent, put = [], Url.put
    monkeypatch.setattr(Url, "put", lambda self, path: (sent.append(self.name), put(self, path)))
    with synced(url) as run:
        save(run, 1)
        push()
        save(run, 2)
        sent.clear()
        push()
        assert sent[-2:] == ["state.npz", "run.json"]
        assert "previous.npz" not in sent
        assert contents(url)["checkpoint/previous.npz"] == "1"


@pytest.mark.parametrize("operations", range(16))
def test_whenever_the_store_dies_the_checkpoint_refers_to_nothing_that_is_missing(url, push, operations):
    with pytest.raises(UserError, match="the store is gone"), dying(operations), synced(url) as run:  # noqa: PT012
        for step in (1, 2, 3):
            save(run, step)
            push()
        write(run / "model.keras", 3)
        write(run / "run.json", "finished")
    found = contents(url)
    steps = found.get("metrics.csv", "").splitlines()
    for name in ("checkpoint/state.npz", "checkpoint/previous.npz"):
        if name in found:
            assert found[name] in steps
            assert int(found["best.keras"]) >= int(found[name])
    assert found.get("run.json") != "finished" or found["model.keras"] == "3"
    # Nor does its record count steps that are lost.
    last = {None: 0, "finished": 3}
    recorded = found.get("run.json")
    assert int(last.get(recorded, recorded)) <= int(found.get("checkpoint/state.npz", 0))
    assert operations < 4 or "checkpoint/state.npz" in found


def test_what_is_saved_during_an_upload_waits_for_the_next_one(url, push, monkeypatch):
    put = Url.put

    def put_and_save(self, path):
        put(self, path)
        monkeypatch.setattr(Url, "put", put)
        save(run, 2)

    with synced(url) as run:
        save(run, 1)
        monkeypatch.setattr(Url, "put", put_and_save)
        push()
        found = contents(url)
        assert (found["checkpoint/state.npz"], found["run.json"]) == ("1", "1")
    assert contents(url)["checkpoint/state.npz"] == "2"


def test_a_search_states_nothing_that_its_runs_do_not_hold(url, push, monkeypatch):
    """Whenever the store dies, and whatever is written while files are copied."""
    search, link = url.with_name("search"), os.link

    def end(folder, trial):
        run = folder / "trials" / f"{trial}"
        save(run, trial)
        write(run / "run.json", "finished")
        write(folder / "oracle.json", trial)

    def link_and_end(source, target):
        link(source, target)
        if len(todo) > 1:
            end(folder, todo.pop(0))

    for operations in itertools.count():
        todo = [1, 2, 3]
        with suppress(UserError), dying(operations) as failures, synced(search) as folder:
            (folder / "trials").mkdir(parents=True, exist_ok=True)
            end(folder, todo.pop(0))
            with monkeypatch.context() as patch:
                patch.setattr(os, "link", link_and_end)
                push()
        found = contents(search)
        for trial in range(1, int(found.get("oracle.json", 0)) + 1):
            assert found[f"trials/{trial}/run.json"] == "finished"
            assert found[f"trials/{trial}/metrics.csv"].startswith(f"{trial}\n")
        search.rmtree()
        if not failures:
            break
    assert operations > 8
    assert found["oracle.json"] == "2"


def test_a_run_without_its_record_has_not_begun(url):
    for name in ("config.json", "steps.csv"):
        (url / "runs" / "a" / name).write_bytes(b"")
    for name in ("config.json", "run.json"):
        (url / "runs" / "b" / name).write_bytes(b"")
    with synced(url) as study:
        assert [path.name for path in (study / "runs").iterdir()] == ["b"]


def test_no_file_is_older_than_another_after_a_download(url):
    for name in ("report.md", "evaluation.json"):
        (url / name).write_bytes(b"")
    with synced(url) as run:
        assert len({path.stat().st_mtime_ns for path in run.iterdir()}) == 1


def test_a_file_that_is_removed_before_its_turn_stops_no_upload(url, push, monkeypatch):
    put = Url.put

    def put_late(self, path):
        if self.name == "best.keras":
            path.unlink()
        put(self, path)

    with synced(url) as run:
        save(run, 1)
        monkeypatch.setattr(Url, "put", put_late)
        push()
    assert sorted(contents(url)) == ["checkpoint/state.npz", "metrics.csv", "run.json"]


def test_an_upload_that_fails_is_tried_again(url, monkeypatch, capsys):
    monkeypatch.setattr(module, "PERIOD", 0.01)
    with synced(url) as run:
        with dying(1) as failures:
            save(run, 1)
            while len(failures) < 3:
                time.sleep(0.01)
        while "checkpoint/state.npz" not in contents(url):
            time.sleep(0.01)
    assert capsys.readouterr().err == "the store is gone. The upload is tried again.\n"


def test_what_cannot_be_uploaded_is_kept(url, monkeypatch):
    with pytest.raises(UserError) as raised, dying(1), synced(url) as run:
        save(run, 1)
    assert (run / "checkpoint" / "state.npz").read_text() == "1"
    assert f"The newest files are on this machine only, in {run}. Upload it." in str(raised.value)
    command = stores.of("gs://bucket")
    monkeypatch.setattr(stores, "of", lambda _: command)
    with pytest.raises(UserError) as raised, dying(1), synced(url) as run:
        save(run, 2)
    assert f"with: gcloud storage rsync --recursive {run} {url}" in str(raised.value)


def test_a_full_disk_is_reported_once_and_the_files_are_kept(url, monkeypatch, capsys):
    attempts = []

    def full(**_):
        attempts.append(1)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/tmp/highway-0")

    monkeypatch.setattr(module, "PERIOD", 0.01)
    # It ends all tasks of a search, like a full disk in one of them.
    with pytest.raises(JobError) as raised, synced(url) as run:  # noqa: PT012
        monkeypatch.setattr(module.tempfile, "TemporaryDirectory", full)
        save(run, 1)
        while len(attempts) < 3:
            time.sleep(0.01)
    message = f"{url} cannot be uploaded from {tempfile.gettempdir()}: No space left on device."
    assert capsys.readouterr().err == f"{message} The upload is tried again.\n"
    assert str(raised.value) == f"{message} The newest files are on this machine only, in {run}. Upload it."
    assert (run / "checkpoint" / "state.npz").read_text() == "1"


def test_what_stays_removed_is_removed_before_the_end(url, push):
    with synced(url) as run:
        save(run, 1)
        push()
        (run / "best.keras").unlink()
        push()
        assert "best.keras" in contents(url)
        push()
        assert "best.keras" not in contents(url)


def test_what_a_signal_keeps_from_being_uploaded_is_kept(url, monkeypatch):
    def stop(self, path):
        raise StoppedError("stopped", 2)

    monkeypatch.setattr(Url, "put", stop)
    with pytest.raises(StoppedError), synced(url) as run:
        save(run, 1)
    assert (run / "checkpoint" / "state.npz").read_text() == "1"


@pytest.mark.parametrize("error", [UserError("it ended."), StoppedError("it ended.", 15)])
def test_an_error_of_the_block_is_not_lost(url, error):
    expected = pytest.raises(UserError, match=r"it ended\. In addition, the store is gone\.")
    with expected, dying(0), synced(url) as run:
        save(run, 1)
        raise error


def test_a_download_that_fails_uploads_nothing(url, monkeypatch):
    with synced(url) as run:
        save(run, 1)
    before = contents(url)

    def fail(pairs):
        pairs[0][1].parent.mkdir(parents=True)
        pairs[0][1].write_text("half")
        raise UserError("gone")

    monkeypatch.setattr(module, "fetch", fail)
    with pytest.raises(UserError, match="gone"), synced(url):
        pass
    assert contents(url) == before


def test_messages_name_the_url(url, capsys):
    with suppress(StoppedError), synced(url) as run:
        sys.stdout.write(f"run directory {run}\n")
        sys.stderr.write(f"{run / 'report.md'}\n")
        raise StoppedError(f"resume {run}", 2) from None
    assert capsys.readouterr() == (f"run directory {url}\n", f"{url}/report.md\n")
    with pytest.raises(UserError, match=f"^there is no {url}$"), synced(url) as run:
        raise UserError(f"there is no {run}")


def test_a_file_is_a_copy_for_a_while(url):
    (url / "a.csv").write_bytes(b"rows")
    expected = pytest.raises(UserError, match=f"{url}/a.csv is wrong")
    with expected, fetched(url / "a.csv") as path:
        assert (path.name, path.read_text()) == ("a.csv", "rows")
        raise UserError(f"{path} is wrong")
    assert not path.exists()


def test_a_single_file_is_synced(url):
    log = url.with_name(".x.log")
    log.write_bytes(b"first\n")
    with synced(log) as path, path.open("a") as file:
        file.write("second\n")
    assert log.read_text() == "first\nsecond\n"
    assert isinstance(path, Path)


def test_another_machine_writes_a_part_of_a_study(url, push, tmp_path):
    (url / "runs" / "0" / "run.json").write_bytes(b"1")
    (url / "runs" / "0" / "best.keras").write_bytes(b"1")
    with synced(url) as study:
        run = study / "runs" / "0"
        assert place_of(run) == url / "runs" / "0"
        assert place_of(tmp_path) == tmp_path
        # A node ends the run, and another one begins.
        (url / "runs" / "0" / "run.json").write_bytes(b"2")
        (url / "runs" / "0" / "best.keras").unlink()
        (url / "runs" / "1" / "run.json").write_bytes(b"1")
        write(study / "README.md", 1)
        push()
        assert contents(url) == {"runs/0/run.json": "2", "runs/1/run.json": "1", "README.md": "1"}
        (study / "README.md").unlink()
        refresh(run)
        refresh(study / "runs" / "2")
        refresh(tmp_path)
        assert {path.name: path.read_text() for path in run.iterdir()} == {"run.json": "2"}
        # It need not be uploaded again.
        (url / "runs" / "0" / "run.json").write_bytes(b"3")
    assert contents(url) == {"runs/0/run.json": "3", "runs/1/run.json": "1"}
    assert place_of(run) == run


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize(
    ("owner", "name"),
    [(shutil, "rmtree"), (Path, "rename"), (os, "unlink"), (os, "utime"), (module, "fetch"), (module, "_files")],
)
def test_a_signal_while_a_finished_run_is_downloaded_changes_nothing_in_the_bucket(
    url, monkeypatch, owner, name, before
):
    """Stops before and after every call of a function within the download, one at a time."""
    action = getattr(owner, name)

    def stopping(*given, **options):
        last = next(turns)
        if last and before:
            raise StoppedError("stopped", signal.SIGTERM)
        done = action(*given, **options)
        if last:
            raise StoppedError("stopped", signal.SIGTERM)
        return done

    for count in itertools.count():
        turns = iter([False] * count + [True])
        for file in ("run.json", "metrics.csv", "checkpoint/state.npz"):
            (url / "runs" / "0" / file).write_bytes(b"1")
        with suppress(StoppedError), synced(url) as study:
            # A node ends the run.
            (url / "runs" / "0" / "checkpoint" / "state.npz").unlink()
            ended = {"runs/0/run.json": "2", "runs/0/metrics.csv": "2", "runs/0/model.keras": "2"}
            for file, text in ended.items():
                (url / file).write_bytes(text.encode())
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, stopping)
                refresh(study / "runs" / "0")
        assert contents(url) == ended
        if [*turns]:
            break
    assert count > 0
