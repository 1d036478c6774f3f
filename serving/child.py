"""Functions called in other processes, so that they neither stop nor end this one.

No library's pool is taken for it. Those on `multiprocessing` (concurrent.futures, Pebble) run the main module again in
each process; in those of concurrent.futures and Loky, one process that is killed breaks the pool for all calls. All of
them copy what passes into pickles, during which all threads wait for Python's lock.
"""

import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, TypeVar

from serving import memory

T = TypeVar("T")
_PROGRAM = "import sys; sys.path[:] = {!r}; from serving import child; child.work()"


class EndedError(Exception):
    """A process ended before it answered."""


class Children:
    """Child processes, as many as there are calls at a time; each makes one call after another.

    They are started when needed, also in the place of one that ended. They end with this process; signals to stop are
    for this one alone.

    Args:
        initializer: called first in each of them, for example to limit it.
        arguments: of the initializer.

    Example:
        children = Children()
        parsed = children.call(orjson.loads, body)
        children.close()
    """

    def __init__(self, initializer: Callable[..., object] | None = None, *arguments: object) -> None:
        self._initializer, self._arguments = initializer, arguments
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function in a child process and waits for it.

        Args:
            function: of a module.
            arguments: that can be pickled, as must be what it returns and raises.

        Returns:
            What it returns; arrays may be read-only.

        Raises:
            EndedError: the process ended, or `close` was called.
        """
        process = self._taken()
        try:
            if process.new and self._initializer is not None:
                process.call(self._initializer, self._arguments)
            return process.call(function, arguments)
        finally:
            self._given_back(process)

    def close(self) -> None:
        """Ends the processes, whatever they are doing; calls under way and later ones raise EndedError."""
        with self._lock:
            self._closed = True
            for process in self._busy:
                # Where it was called from, it is waited for.
                process.kill()
            while self._idle:
                self._idle.pop().end()

    def _taken(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise EndedError
            # The one that was used last is warm; the system may have ended any meanwhile.
            while self._idle and not self._idle[-1].usable:
                self._idle.pop().end()
            process = self._idle.pop() if self._idle else _Process()
            self._busy.add(process)
            return process

    def _given_back(self, process: "_Process") -> None:
        with self._lock:
            self._busy.remove(process)
            if process.usable and not self._closed:
                self._idle.append(process)
                return
        process.end()


class _Process:
    def __init__(self) -> None:
        # In a session of its own, so that a Ctrl-C is not sent to it.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self.new = True
        self._between = True

    @property
    def usable(self) -> bool:
        """Whether it waits for a call."""
        return self._between and self._process.poll() is None

    def call(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Bytes are handed over as they are, arrays are so anyway: a copy of many would stop the event loop, too.
        given = [pickle.PickleBuffer(one) if isinstance(one, (bytes, bytearray)) else one for one in arguments]
        self._between = False
        try:
            _send(self._process.stdin, (function, given))
            done, result = _receive(self._process.stdout)
        except (EOFError, OSError):
            raise EndedError from None
        self.new, self._between = False, True
        if done:
            return result
        raise result

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        # What was not written any more is of no use.
        with suppress(BrokenPipeError), self._process:
            pass


def work() -> None:
    """Answers calls from standard input until its end: the program of a child process."""
    # Signals are sent to whole containers; this one ends when nobody can write to it any more, and not before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    memory.one_heap()
    calls, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Whatever prints shall not print into an answer.
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = _receive(calls)
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except Exception as error:
            answer = False, error
        try:
            _send(answers, answer)
        except BrokenPipeError:
            return
        # A body of 30 MB may have become a gigabyte.
        del function, arguments, answer
        memory.give_back()


def _send(stream: IO[bytes], content: object) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(content, 5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    stream.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    (count,) = struct.unpack("<Q", _exactly(stream, 8))
    head, *buffers = [_exactly(stream, size) for size in struct.unpack(f"<{count}Q", _exactly(stream, 8 * count))]
    return pickle.loads(head, buffers=buffers)


def _exactly(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
