"""Cores that one process holds and others leave alone, on a machine where nobody assigns them.

A file per core is locked for as long as its holder works; the system releases the locks of a process that dies.
"""

import fcntl
import os
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pipelines.core import environment


@contextmanager
def pinned(count: int) -> Iterator[None]:
    """Confines this process to cores that no other process has pinned itself to in this way.

    All threads move, because thread pools of frameworks outlive a task. Where fewer cores are free than asked for, the
    process may use all of them. Frameworks that are imported in the block see these cores alone.

    Args:
        count: number of cores.

    Example:
        with pinned(2):
            train()
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = environment.available()
    with ExitStack() as locks:
        cores = _locked(before, count, locks)
        _move(cores or before)
        try:
            yield
        finally:
            _move(before)


def _locked(cores: list[int], count: int, locks: ExitStack) -> list[int]:
    """Locks the first free cores; returns none if there are too few."""
    folder = Path(tempfile.gettempdir()) / f"highway-cores-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = []
    for core in cores:
        file = locks.enter_context((folder / str(core)).open("w"))
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        found.append(core)
        if len(found) == count:
            return found
    locks.close()
    return []


def _move(cores: list[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        try:
            os.sched_setaffinity(int(thread.name), cores)
        except ProcessLookupError:
            # It has just ended.
            continue
