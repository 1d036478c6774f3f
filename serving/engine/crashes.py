"""Graphs that pass their smoke test and still crash ONNX Runtime, or never end, on a later image.

Clients retry, so the next worker would crash too, and take all other models down with it: the supervisor records which
versions a worker was predicting with. A call that does not end cannot be stopped, so it crashes the process too.
"""

import itertools
import logging
import mmap
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

In = ParamSpec("In")
Out = TypeVar("Out")
# Signals of a crash; not SIGKILL, which the system sends to a process that takes too much memory.
_CRASH = {-number for number in signal.Signals if number.name in ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL")}
# Bytes of a slot, which names the version a thread is predicting with, and slots per worker; more threads share them.
_SLOT, _THREADS = 512, 256
log = logging.getLogger(__name__)


class Crashes:
    """Versions that crashed a worker process, shared by a supervisor and the workers that it forks.

    Args:
        workers: number of workers.

    Example:
        crashes = Crashes(2)
        predict = crashes.attribute("demo/1 5f7c", model.predict)
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

    def attribute(self, version: str, function: Callable[In, Out]) -> Callable[In, Out]:
        """Wraps a function so that the supervisor knows its version while it runs.

        Args:
            version: the version that it predicts with, by name, number and digest of its graph.
            function: called in any thread.
        """
        note, memory, own = version.encode() + b"\0", self._predicting, self._own

        def attributed(*arguments: In.args, **named: In.kwargs) -> Out:
            try:
                at = own.slot
            except AttributeError:
                at = own.slot = next(self._slots)
            memory[at : at + len(note)] = note
            try:
                return function(*arguments, **named)
            finally:
                memory[at] = 0

        return attributed

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


@dataclass
class _TimedCall:
    version: str
    # Seconds that the call has taken, without those in which the process was suspended.
    age: float = 0.0


@dataclass
class Watchdog:
    """Aborts the process if a call takes too long: it may block the event loop, and no thread can be stopped.

    Args:
        seconds: time limit of a call, not counting the time while the process is suspended.

    Example:
        predict = Watchdog(60.0).limit("demo/1 5f7c", model.predict)
    """

    seconds: float
    _calls: dict[int, _TimedCall] = field(default_factory=dict, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _closed: threading.Event = field(default_factory=threading.Event, init=False)

    def limit(self, version: str, function: Callable[In, Out]) -> Callable[In, Out]:
        """Wraps a function so that its calls have a time limit.

        Args:
            version: the version that it predicts with, for the log.
            function: called in any thread.
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
            self._thread.start()
        calls = self._calls

        def limited(*arguments: In.args, **named: In.kwargs) -> Out:
            thread = threading.get_ident()
            calls[thread] = _TimedCall(version)
            try:
                return function(*arguments, **named)
            finally:
                del calls[thread]

        return limited

    def close(self) -> None:
        """Ends the checks: there are no further calls."""
        self._closed.set()

    def _run(self) -> None:
        pause = min(1.0, self.seconds / 4)
        while not self._closed.wait(pause):
            for call in list(self._calls.values()):
                call.age += pause
                if call.age > self.seconds:
                    log.critical("a prediction does not end", extra={"version": call.version, "seconds": self.seconds})
                    os.abort()


def _slots(worker: int) -> range:
    return range(worker * _THREADS * _SLOT, (worker + 1) * _THREADS * _SLOT, _SLOT)
