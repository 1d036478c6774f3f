"""A catalog over folders that stand for versions, and an executor whose first thread cannot be started."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from serving.engine import catalog as catalogs
from serving.engine.catalog import Catalog

from .catalogs import opened


@pytest.fixture
def root(tmp_path):
    for version in (1, 2):
        (tmp_path / "digits" / str(version)).mkdir(parents=True)
    return tmp_path


@pytest.fixture
def clock(monkeypatch):
    """The time, which stands still until it is set."""
    time = [1000.0]
    monkeypatch.setattr(catalogs, "monotonic", lambda: time[0])
    return time


@pytest.fixture
def catalog(root):
    made = Catalog(root, opened)
    made.refresh()
    return made


@pytest.fixture
def no_thread_at_first(monkeypatch):
    """An executor; the first thread that it starts fails, as in a container with a limit on processes."""
    start, failures = threading.Thread.start, [RuntimeError("can't start new thread")]

    def failing_start(thread):
        if thread.name.startswith("late") and failures:
            raise failures.pop()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", failing_start)
    with ThreadPoolExecutor(2, "late") as made:
        yield made
