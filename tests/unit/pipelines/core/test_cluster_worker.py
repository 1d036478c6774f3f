"""The cores of a task on a node."""

import os
import subprocess
import sys
import threading

import pytest

from pipelines.core.cluster_worker import pinned
from pipelines.core.environment import available

pytestmark = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity") or len(available()) < 2, reason="needs two cores and their affinity"
)
OTHER = """
import os, sys
from pipelines.core.cluster_worker import pinned
os.sched_setaffinity(0, range(os.cpu_count()))
with pinned(int(sys.argv[1])):
    print(*os.sched_getaffinity(0))
"""


@pytest.fixture(autouse=True)
def _own_locks(monkeypatch, tmp_path):
    monkeypatch.setattr("pipelines.core.cluster_worker.tempfile.tempdir", None)
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def other(count):
    """Returns the cores of another process that pins itself."""
    done = subprocess.run([sys.executable, "-c", OTHER, str(count)], capture_output=True, text=True, check=True)
    return {int(core) for core in done.stdout.split()}


def test_processes_have_different_cores_until_there_are_too_few():
    before = available()
    with pinned(len(before) - 1):
        mine = available()
        assert len(mine) == len(before) - 1
        assert other(1) == {*before} - {*mine}
        # Not enough are free.
        assert other(len(before)) == {*before}
    assert available() == before
    assert other(1) == {before[0]}


def test_threads_move_too():
    before, here, found = available(), threading.Event(), threading.Event()

    def stay():
        here.set()
        found.wait()
        cores.append(os.sched_getaffinity(0))

    cores = []
    thread = threading.Thread(target=stay)
    thread.start()
    here.wait()
    with pinned(1):
        found.set()
        thread.join()
    assert cores == [{before[0]}]


def test_the_end_of_a_block_releases_the_cores_whatever_happens():
    before = available()
    with pytest.raises(ZeroDivisionError), pinned(1):
        raise ZeroDivisionError
    assert available() == before
    assert other(1) == {before[0]}
