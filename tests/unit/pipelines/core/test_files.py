import errno
import fcntl
import os
import socket
import stat
from pathlib import Path

import pytest

from pipelines.core.errors import UserError
from pipelines.core.files import (
    check_replaceable,
    check_writable,
    csv_text,
    file_lock,
    remove_leftovers,
    removing_new,
    replacing,
    replacing_folder,
    temporary_folder,
    write_text,
)

FULL = Path("/dev/full")


def test_a_new_file_and_its_folders(tmp_path):
    path = tmp_path / "a" / "b" / "record.json"
    write_text(path, "größer\n")
    assert path.read_bytes() == "größer\n".encode()
    assert list(path.parent.iterdir()) == [path]


def test_rows_of_csv_quote_what_they_must():
    assert csv_text([("net", "note"), ("plain", 'a "b", c'), (1, None)]) == 'net,note\nplain,"a ""b"", c"\n1,\n'


def test_the_temporary_file_has_the_same_suffix_and_folder(tmp_path):
    with replacing(tmp_path / "model.keras") as aside:
        assert aside.suffix == ".keras"
        assert aside.parent == tmp_path
        assert aside.name.startswith(".")
        aside.write_bytes(b"weights")
    assert (tmp_path / "model.keras").read_bytes() == b"weights"


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "record.json"
    write_text(path, "old")
    with pytest.raises(RuntimeError, match="half-way"), replacing(path) as aside:  # noqa: PT012
        aside.write_text("ne")
        raise RuntimeError("half-way")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_an_interruption_leaves_nothing(tmp_path):
    with pytest.raises(KeyboardInterrupt), replacing(tmp_path / "record.json") as aside:  # noqa: PT012
        aside.write_text("ne")
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not FULL.exists(), reason="no /dev/full on this system")
def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "record.json"
    write_text(path, "old")
    with pytest.raises(OSError, match="No space left") as caught, replacing(path) as aside:  # noqa: PT012
        aside.unlink()
        aside.symlink_to(FULL)
        aside.write_text("new")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_is_full_only_when_flushed_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    write_text(path, "old")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_text(path, "new")
    monkeypatch.undo()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_content_is_on_disk_before_the_rename(tmp_path, monkeypatch):
    path = tmp_path / "record.json"
    events = []
    fsync, replace = os.fsync, os.replace

    def flushed(handle):
        events.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        fsync(handle)

    def renamed(source, target):
        events.append("rename")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    write_text(path, "new")
    assert events == ["file", "rename", "folder"]


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_permissions_follow_the_umask_as_for_any_new_file(tmp_path, mask):
    before = os.umask(mask)
    try:
        write_text(tmp_path / "record.json", "")
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == 0o666 & ~mask


def test_the_replaced_file_can_be_kept(tmp_path):
    path, before = tmp_path / "state.npz", tmp_path / "previous.npz"
    for content in (b"1", b"2", b"3"):
        with replacing(path, before=before) as aside:
            aside.write_bytes(content)
    assert (path.read_bytes(), before.read_bytes()) == (b"3", b"2")
    assert len(list(tmp_path.iterdir())) == 2


def test_a_failure_keeps_both_files(tmp_path):
    path, before = tmp_path / "state.npz", tmp_path / "previous.npz"
    path.write_bytes(b"2")
    before.write_bytes(b"1")
    with pytest.raises(RuntimeError), replacing(path, before=before):
        raise RuntimeError
    assert (path.read_bytes(), before.read_bytes()) == (b"2", b"1")


def test_a_lock_that_cannot_be_opened_is_one_sentence(tmp_path, monkeypatch):
    def refused(*_):
        raise PermissionError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "open", refused)
    with (
        pytest.raises(UserError, match="lock cannot be written: Operation not permitted"),
        file_lock(tmp_path / "lock", "it is locked", create=True),
    ):
        pytest.fail("not refused")


def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refused)
    with (
        pytest.raises(UserError, match=r"lock cannot lock files \(No locks available\)"),
        file_lock(tmp_path / "lock", "it is locked", create=True),
    ):
        pytest.fail("not refused")


def test_only_temporary_files_are_leftovers(tmp_path):
    others = {".hidden", ".gitignore", "state-12345678.npz", "model.keras"}
    for name in others:
        (tmp_path / name).touch()
    killed = replacing(tmp_path / "model.keras")
    assert killed.__enter__().exists()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == others


def contents(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_folder_replaces_the_previous_one_with_all_its_content(tmp_path):
    for name in ("first", "second"):
        with replacing_folder(tmp_path / "a" / "b") as aside:
            assert not list(aside.iterdir())
            write_text(aside / name / "file.txt", name)
            assert not (tmp_path / "a" / "b" / name).exists()
        assert contents(tmp_path) == {"a", "a/b", f"a/b/{name}", f"a/b/{name}/file.txt"}
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == stat.S_IMODE((tmp_path / "a").stat().st_mode)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_folder_that_fails_leaves_the_old_one(tmp_path, error):
    write_text(tmp_path / "b" / "old.txt", "old")
    with pytest.raises(error), replacing_folder(tmp_path / "b") as aside:  # noqa: PT012
        write_text(aside / "new.txt", "new")
        raise error
    assert contents(tmp_path) == {"b", "b/old.txt"}


def test_a_folder_that_cannot_be_moved_leaves_the_old_one(tmp_path, monkeypatch):
    write_text(tmp_path / "b" / "old.txt", "old")
    rename = Path.rename

    def refuses(self, target):
        if self.name == "new":
            raise OSError(errno.EIO, "no")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", refuses)
    with pytest.raises(UserError, match="b cannot be written: no"), replacing_folder(tmp_path / "b") as aside:
        write_text(aside / "new.txt", "new")
    assert contents(tmp_path) == {"b", "b/old.txt"}


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_new_folders_that_an_error_leaves_empty_are_removed(tmp_path, error):
    study = tmp_path / "old" / "new" / "study"
    (tmp_path / "old").mkdir()

    def fail(*files):
        with removing_new(study):
            study.mkdir(parents=True)
            for file in files:
                file.touch()
            raise error

    with pytest.raises(error):
        fail()
    assert contents(tmp_path) == {"old"}
    with pytest.raises(error):
        fail(study.parent / "file")
    assert contents(tmp_path) == {"old", "old/new", "old/new/file"}


def test_new_folders_stay_if_they_have_files(tmp_path):
    with removing_new(tmp_path / "new" / "study"):
        (tmp_path / "new" / "study").mkdir(parents=True)
        (tmp_path / "new" / "file").touch()
    assert contents(tmp_path) == {"new", "new/file"}


def test_a_folder_need_not_exist_to_be_writable(tmp_path, monkeypatch):
    check_writable(tmp_path / "new" / "figures")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match=r"file/figures cannot be written: .*/file is a file"):
        check_writable(tmp_path / "file" / "figures")
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UserError, match=rf"new cannot be written: {tmp_path} is read-only\. Name another folder"):
        check_writable(tmp_path / "new")


def test_a_folder_that_cannot_be_written_is_found_before_anything_is_computed(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    check_replaceable(tmp_path / "new" / "analysis")
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]
    with pytest.raises(UserError, match=r"file/analysis cannot be written: .* Name another folder"):
        check_replaceable(tmp_path / "file" / "analysis")
    monkeypatch.setattr(os.path, "ismount", lambda path: True)
    with pytest.raises(UserError, match="is a mount point, which cannot be replaced"):
        check_replaceable(tmp_path / "disk")


def _left(folder, host=None):
    """A temporary folder of a process that was killed."""
    (folder / "part").mkdir(parents=True)
    (folder / "part" / "data").touch()
    (folder / "lock").write_text(host or socket.gethostname())
    return folder


def test_a_temporary_folder_replaces_those_of_killed_processes(tmp_path):
    _left(tmp_path / ".preparing-a")
    other, unlocked = _left(tmp_path / ".preparing-b"), tmp_path / ".preparing-c"
    unlocked.mkdir()
    # Its lock may not be seen here.
    elsewhere = _left(tmp_path / ".preparing-d", "another machine")
    with file_lock(other / "lock", "it is in use"), temporary_folder(tmp_path, ".preparing-") as mine:
        assert {*tmp_path.iterdir()} == {mine, other, unlocked, elsewhere}
        # It counts as one of a process that lives, and the next one leaves it alone.
        with temporary_folder(tmp_path, ".preparing-"):
            assert mine.exists()
    assert {*tmp_path.iterdir()} == {other, unlocked, elsewhere}


def test_a_temporary_folder_needs_no_locks(tmp_path, monkeypatch):
    def refused(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refused)
    _left(tmp_path / ".preparing-a")
    with temporary_folder(tmp_path, ".preparing-") as mine:
        assert {path.name for path in tmp_path.iterdir()} == {mine.name, ".preparing-a"}
    assert not mine.exists()
