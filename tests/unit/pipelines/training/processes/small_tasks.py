"""Functions for an executor that take no time and no framework."""

import os
import signal
import time

from pipelines.core.errors import UserError
from pipelines.core.executor import AttemptError


def double(number):
    return 2 * number


def pid(_):
    return os.getpid()


def sleep(seconds):
    time.sleep(seconds)


def refuse(reason):
    raise UserError(reason)


def fill_the_disk(_):
    raise OSError(28, "No space left on device")


def die(_):
    os.kill(os.getpid(), signal.SIGKILL)


def die_once(path):
    if not path.exists():
        path.touch()
        die(path)
    return "lived"


def fail_in(paths):
    """Fails in a sick process, until one file of each attempt is there; returns the processes of all attempts."""
    path = next((path for path in paths if not path.exists()), None)
    if path:
        path.write_text(f"{os.getpid()}")
        raise AttemptError("out of memory")
    return [int(path.read_text()) for path in paths] + [os.getpid()]


def meet(path):
    """Waits until another task has a file in the folder too; returns the cores of this process."""
    path.touch()
    while len(list(path.parent.iterdir())) < 2:
        time.sleep(0.01)
    return tuple(sorted(os.sched_getaffinity(0)))
