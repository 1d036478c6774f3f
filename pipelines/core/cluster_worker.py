"""A task on a node of a cluster: checks that the node has the same code, and runs the task on its own cores.

Ray counts the cores of a node but does not say which ones a task has. A file per core is therefore locked for as long
as a task works on it; the system releases the locks of a process that dies.
"""

import fcntl
import os
import pickle
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from pipelines.core import environment
from pipelines.core.errors import StoppedError, UserError
from pipelines.core.executor import Outcome, attempt, on_node


def perform(setting: Mapping[str, Any], key: str, content: bytes) -> Outcome | str:
    """Runs a task on this node.

    Args:
        setting: see `pipelines.core.cluster_executor`.
        key: key of the task.
        content: the task and its function, pickled.

    Returns:
        The outcome; or an error message that ends all tasks, because this node has other code or a full disk.

    Raises:
        SystemExit: a signal ended the task, which another process takes over.
    """
    if refusal := _refusal(environment.installed(), setting["installed"]):
        return refusal
    os.environ.update(setting["variables"])
    # Tasks may name paths relative to it; if a node lacks such a path, the task itself reports that.
    with suppress(OSError):
        os.chdir(setting["folder"])
    with pinned(setting["cores"]):
        try:
            return replace(attempt(key, *pickle.loads(content)), node=socket.gethostname())
        except UserError as error:
            return on_node(str(error), socket.gethostname())
        except StoppedError as stopped:
            sys.exit(128 + stopped.number)


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


def _refusal(here: Mapping[str, str], wanted: Mapping[str, str]) -> str:
    """Returns a sentence about the first difference between what this node and the leading machine have installed."""
    name = next((name for name in {**wanted, **here} if here.get(name) != wanted.get(name)), None)
    if name is None:
        return ""
    node = f"the node {socket.gethostname()} has"
    if name == "code":
        return f"{node} other code of highway-keras {here['highway-keras']} than this machine. Install the same there."
    found, expected = (f"{name} {one[name]}" if name in one else f"no {name}" for one in (here, wanted))
    return f"{node} {found}, and this machine has {expected}. Install the same there."


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
