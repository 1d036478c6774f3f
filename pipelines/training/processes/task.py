"""The work of a supervised process: one argument that says everything, and how it begins and ends."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Thread
from typing import ClassVar

from pipelines.core.config import Frozen
from pipelines.core.guard import guarded

AGAIN = 75
"""Exit status of a process that wants to be started again, with fresh memory or without what it was at."""


class Task(Frozen):
    """What a process does; each kind of work has a task of its own."""

    module: ClassVar[str]
    """Run as a program with the task as JSON."""
    role: str
    """Tells the kinds of processes of a verb apart."""
    folder: Path
    """What it works on."""
    data_dir: Path | None
    """Where prepared data lies; None for the default of TFDS."""
    cores: tuple[int, ...] = ()
    """The cores that it may use; none for all."""


def perform(program: str, task: Task, act: Callable[[], None]) -> int:
    """Does a task on its cores, and ends with the process that started it.

    Args:
        program: what stands before the message of a user's mistake.
        task: what is done.
        act: does it.

    Returns:
        The exit status: 0 when it is done; 2 for a user's mistake; `AGAIN`.
    """
    Thread(target=_end_with_parent, name="parent", daemon=True).start()
    if task.cores and hasattr(os, "sched_setaffinity"):
        # Before any framework counts the cores to make its threads.
        os.sched_setaffinity(0, task.cores)
    try:
        return guarded(program, act)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1


def leave(status: int) -> None:
    """Ends the process at once: threads of gRPC and TensorFlow must not keep one that is done."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def _end_with_parent() -> None:
    # The other end of the pipe is closed when the parent ends, however it does.
    sys.stdin.buffer.read()
    os._exit(1)
