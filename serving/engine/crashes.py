"""Records which versions a worker process was predicting with when it crashed.

A graph can pass its trial and still crash ONNX Runtime on a later image. Clients retry, so the next worker would crash
too, and take all other models down with it.
"""

import itertools
import mmap
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

In = TypeVar("In")
Out = TypeVar("Out")
# Signals of a crash; not SIGKILL, which the system sends to a process that takes too much memory.
_CRASH = {-number for number in signal.Signals if number.name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")}
# Bytes of a slot, which names the version a thread is predicting with, and slots per worker; more threads share them.
_SLOT, _THREADS = 512, 256


class Crashes:
    """Versions that crashed a worker process, shared by a supervisor and the workers that it forks.

    Args:
        workers: number of workers.

    Example:
        crashes = Crashes(2)
        predict = crashes.watch("demo/1 5f7c", model.predict)
    """

    def __init__(self, workers: int) -> None:
        # Forked workers share this memory, and get a copy of the set.
        self._predicting = mmap.mmap(-1, workers * _THREADS * _SLOT)
        self._found: set[str] = set()
        self._own = threading.local()
        self.enter(0)

    def enter(self, worker: int) -> None:
        """Makes this process one of the workers.

        Args:
            worker: its number, from 0.
        """
        self._slots = itertools.cycle(_slots(worker))

    def watch(self, version: str, function: Callable[[In], Out]) -> Callable[[In], Out]:
        """Wraps a function so that the supervisor knows its version while it runs.

        Args:
            version: the version that it predicts with, by name, number and digest of its graph.
            function: called in any thread.
        """
        note, memory, own = version.encode() + b"\0", self._predicting, self._own

        def watched(argument: In) -> Out:
            try:
                at = own.slot
            except AttributeError:
                at = own.slot = next(self._slots)
            memory[at : at + len(note)] = note
            try:
                return function(argument)
            finally:
                memory[at] = 0

        return watched

    def caused_by(self, version: str) -> bool:
        """Returns whether a worker crashed while it was predicting with a version."""
        return version in self._found

    def collect(self, worker: int, status: int) -> list[str]:
        """Records the end of a worker; called by the supervisor.

        Args:
            worker: its number.
            status: its exit status; negative for the number of a signal.

        Returns:
            The versions that it was predicting with, if it crashed.
        """
        notes = [self._predicting[at : at + _SLOT].partition(b"\0")[0].decode() for at in _slots(worker)]
        for at in _slots(worker):
            self._predicting[at] = 0
        if status not in _CRASH:
            return []
        found = {note for note in notes if note}
        self._found |= found
        return sorted(found)


def _slots(worker: int) -> range:
    return range(worker * _THREADS * _SLOT, (worker + 1) * _THREADS * _SLOT, _SLOT)
