"""Cached copies of the objects in a bucket, on fsspec's file system in memory."""

import errno
import io
import itertools
import threading

import pytest
from rich.console import Console

from pipelines.core import cached_copy as module
from pipelines.core.cached_copy import COMPLETE, locked_copy, update
from pipelines.core.errors import UserError
from pipelines.core.files import user_cache
from pipelines.core.url import Url, fetch

numbers = itertools.count()


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def url():
    """A folder of three objects in memory."""
    made = Url(f"memory://copied-{next(numbers)}/photos")
    for name in ("a.png", "b/c.png", "b/d.png"):
        (made / name).write_bytes(name.encode())
    return made


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=200)


@pytest.fixture
def fetched(monkeypatch):
    """Grows with the name of each object that is downloaded."""
    names = []

    def noted(pairs, advance):
        names.extend(str(url) for url, _ in pairs)
        fetch(pairs, advance)

    monkeypatch.setattr(module, "fetch", noted)
    return names


def copied(url, console):
    """Brings the copy up to date, and returns the contents of its files."""
    with locked_copy(url, console) as folder:
        path = update(folder, url, url.files(), console)
        return {file.relative_to(path).as_posix(): file.read_text() for file in path.rglob("*") if file.is_file()}


def test_only_new_and_changed_objects_are_downloaded(url, console, fetched):
    whole = {"a.png": "a.png", "b/c.png": "b/c.png", "b/d.png": "b/d.png"}
    assert copied(url, console) == whole
    assert f"downloading 3 objects (19 bytes) of {url}\n" in console.file.getvalue()
    fetched.clear()
    assert copied(url, console) == whole
    assert fetched == []
    # Of the same size.
    (url / "a.png").write_bytes(b"other")
    (url / "e.png").write_bytes(b"e.png")
    (url / "b").rmtree()
    # It was a folder.
    (url / "b").write_bytes(b"b")
    assert copied(url, console) == {"a.png": "other", "b": "b", "e.png": "e.png"}
    assert fetched == [f"{url}/a.png", f"{url}/b", f"{url}/e.png"]


def test_an_object_without_a_stamp_is_downloaded_every_time(url, console, monkeypatch):
    # Stores whose listings show nothing that changes with the content.
    monkeypatch.setattr("pipelines.core.url.STAMPS", ())
    copied(url, console)
    # Of the same size.
    (url / "a.png").write_bytes(b"other")
    assert copied(url, console)["a.png"] == "other"


def test_a_file_that_was_changed_on_the_disk_is_replaced(url, console):
    copied(url, console)
    (file,) = user_cache().rglob("a.png")
    file.write_text("a user's own")
    assert copied(url, console)["a.png"] == "a.png"


def test_a_download_that_was_interrupted_goes_on(url, console, fetched, monkeypatch):
    monkeypatch.setattr(module, "COUNT", 1)
    noted = module.fetch

    def fetch_and_die(pairs, advance):
        if len(fetched) == 2:
            # As a kill in the middle of an object.
            pairs[0][1].write_bytes(b"half")
            raise KeyboardInterrupt
        noted(pairs, advance)

    with monkeypatch.context() as patch:
        patch.setattr(module, "fetch", fetch_and_die)
        with pytest.raises(KeyboardInterrupt):
            copied(url, console)
    assert len(fetched) == 2
    (record,) = user_cache().rglob(COMPLETE)
    with record.open("a") as file:
        file.write('["photos/b/d.p')
    (record.parent / "arriving-x").mkdir()
    assert copied(url, console) == {"a.png": "a.png", "b/c.png": "b/c.png", "b/d.png": "b/d.png"}
    assert len(fetched) == 3
    assert not list(record.parent.glob("arriving-*"))


def test_a_part_of_an_object_is_not_taken_for_the_whole(url, console, monkeypatch):
    def cut(pairs, advance):
        fetch(pairs, advance)
        pairs[-1][1].write_bytes(b"b/d")

    with monkeypatch.context() as patch:
        patch.setattr(module, "fetch", cut)
        with pytest.raises(UserError, match=f"{url}/b/d.png had 7 bytes, but 3 were downloaded: it has changed"):
            copied(url, console)
    assert copied(url, console)["b/d.png"] == "b/d.png"


def test_a_full_disk_is_reported_and_keeps_what_has_arrived(url, console, fetched, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "fetch", fail)
        with pytest.raises(UserError, match=r"No space left on device\. Free some space"):
            copied(url, console)
    copied(url, console)
    assert len(fetched) == 3


def test_two_that_use_a_copy_wait_for_each_other(url, console):
    ended = threading.Event()

    def other():
        with locked_copy(url, console):
            ended.set()

    waiting = threading.Event()
    console.print = lambda text, **_: (console.file.write(text), waiting.set())
    thread = threading.Thread(target=other)
    with locked_copy(url, console):
        thread.start()
        assert waiting.wait(60)
        assert not ended.is_set()
    thread.join()
    assert ended.is_set()
    assert console.file.getvalue() == f"waiting for another process on this machine that reads {url}"


def test_names_that_lead_out_of_the_copy_are_refused(url, console):
    (url / ".." / "x").write_bytes(b"")
    with pytest.raises(UserError, match=r"/\.\./x cannot be a file: its name has the part"):
        copied(url, console)
