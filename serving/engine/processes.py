"""Function calls in child processes, so that they can neither block nor crash this one.

Existing process pools do not fit. Those built on `multiprocessing` (concurrent.futures, Pebble) run the main module
again in each child; in concurrent.futures and Loky, one killed child breaks the pool for every later call. All of them
pickle the data that they pass, which holds the GIL.
"""

import asyncio
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import IO, Any, TypeVar

from serving import memory
from serving.errors import BusyError

T = TypeVar("T")
# Bytes of JSON, or numbers in a response, that the event loop still handles itself, in two or three milliseconds.
SMALL = 2**15
# Bytes of a body that the event loop still copies itself, such as files or tensors in binary.
COPIED = 2**20
# Added to the nice value of processes for expensive requests; 19 is the maximum.
NICE = 10
# The priority comes first: the imports of several children would otherwise compete with the event loop.
_PROGRAM = "import os, sys; os.nice({}); sys.path[:] = {!r}; from {} import processes; processes.work({})"


class EndedError(Exception):
    """A child process ended before it returned a result.

    Args:
        status: its exit status; negative for the number of a signal.
    """

    def __init__(self, status: int = -signal.SIGKILL) -> None:
        super().__init__(status)
        self.status = status


class TimeLimitError(EndedError):
    """A child process was killed because a call took longer than the time limit.

    Args:
        seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds


class ChildProcesses:
    """Child processes, as many as there are concurrent calls; each handles one call after another.

    They start on demand, replace those that were killed, and end with this process. They ignore SIGINT and SIGTERM,
    which are meant for this process.

    Args:
        initializer: called first in each child, for example to set its limits.
        arguments: arguments of the initializer.
        nice: added to the nice value of each child before it imports anything.
        seconds: time limit of a call; None sets none.

    Example:
        children = ChildProcesses()
        parsed = children.call(orjson.loads, body)
        children.close()
    """

    def __init__(
        self,
        initializer: Callable[..., object] | None = None,
        *arguments: object,
        nice: int = 0,
        seconds: float | None = None,
    ) -> None:
        self._initializer, self._arguments, self._nice, self._seconds = initializer, arguments, nice, seconds
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._closed = False

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function in a child process and waits for its result.

        Args:
            function: a function at the top level of a module.
            arguments: must be picklable, like the result and any exception.

        Returns:
            The result; arrays may be read-only.

        Raises:
            TimeLimitError: the call exceeded the time limit.
            EndedError: the child crashed or was killed, or `close` was called.
        """
        process, exceeded = self._acquire(), threading.Event()

        def end() -> None:
            exceeded.set()
            process.kill()

        timer = threading.Timer(self._seconds, end) if self._seconds else None
        if timer:
            timer.daemon = True
            timer.start()
        try:
            if process.new and self._initializer is not None:
                process.call(self._initializer, self._arguments)
            return process.call(function, arguments)
        except EndedError:
            if self._seconds and exceeded.is_set():
                raise TimeLimitError(self._seconds) from None
            raise
        finally:
            if timer:
                timer.cancel()
            self._release(process)

    def end_idle(self) -> None:
        """Ends children that are waiting for a call, to free their memory."""
        with self._lock:
            while self._idle:
                self._idle.pop().end()

    def close(self) -> None:
        """Kills all children; pending and later calls raise EndedError."""
        with self._lock:
            self._closed = True
            for process in self._busy:
                # The caller waits for it to end.
                process.kill()
        self.end_idle()

    def _acquire(self) -> "_Process":
        with self._lock:
            if self._closed:
                raise EndedError
            # The most recently used child is warm; the system may have killed any of them meanwhile.
            while self._idle and not self._idle[-1].usable:
                self._idle.pop().end()
            process = self._idle.pop() if self._idle else _Process(self._nice)
            self._busy.add(process)
            return process

    def _release(self, process: "_Process") -> None:
        with self._lock:
            self._busy.remove(process)
            if process.usable and not self._closed:
                self._idle.append(process)
                return
        process.end()


class Offload:
    """Runs functions in child processes for an event loop.

    A JSON parser holds the GIL for the whole document, so a thread does not help: a large body of nested lists would
    block every other request for seconds.

    Args:
        processes: maximum number of children.

    Example:
        offload = Offload(1)
        parsed = await offload.run(orjson.loads, body)
        offload.close()
    """

    def __init__(self, processes: int) -> None:
        # Each thread waits for one child.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="offload")
        # At a low priority: the event loop must not wait for a core.
        self._children = ChildProcesses(nice=NICE)

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function that has no side effects; see `ChildProcesses.call`.

        Raises:
            BusyError: the child was killed, twice.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, function, *arguments)

    def close(self) -> None:
        """Kills the children without waiting for their results."""
        self._children.close()
        self._threads.shutdown(cancel_futures=True)

    def _run(self, function: Callable[..., T], *arguments: object) -> T:
        # The system may have killed the child to free memory.
        for _ in range(2):
            with suppress(EndedError):
                return self._children.call(function, *arguments)
        raise BusyError("the process that reads large requests and writes large responses was killed.", after=1.0)


class _Process:
    def __init__(self, nice: int) -> None:
        # Ctrl-C does not reach its group. Not a session of its own: Linux shares the processor among sessions first, so
        # its nice value would count within that one only.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM.format(nice, sys.path, __package__, os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=memory.in_huge_pages(os.environ),
            process_group=0,
        )
        self.new = True
        self._between = True

    @property
    def usable(self) -> bool:
        """True if it waits for a call."""
        return self._between and self._process.poll() is None

    def call(self, function: Callable[..., T], arguments: tuple[object, ...]) -> T:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # Bytes and arrays are written without a copy: copying large ones would block the event loop.
        wrapped = [pickle.PickleBuffer(one) if isinstance(one, (bytes, bytearray)) else one for one in arguments]
        self._between = False
        try:
            _send(self._process.stdin, (function, wrapped))
            done, result = _receive(self._process.stdout)
        except (EOFError, OSError):
            # Its pipes are closed, so its status is settled.
            self.kill()
            raise EndedError(self._process.wait()) from None
        self.new, self._between = False, True
        if done:
            return result
        error, cause = result
        try:
            raise error from cause
        finally:
            # Its traceback refers to this frame: the cycle would keep both alive, and the arguments with them.
            del error, result

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        # Closing flushes the pipe, which nobody reads any more.
        with suppress(BrokenPipeError), self._process:
            pass


def work(parent: int) -> None:
    """Handles calls from standard input until it closes: the program of a child process.

    Args:
        parent: ID of the process that started it.
    """
    # Signals may be sent to a whole container; a child ends when its pipe closes.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    memory.one_heap()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    calls, results = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # Output of the functions must not end up among the results.
    os.dup2(2, 1)
    while True:
        try:
            function, arguments = _receive(calls)
        except EOFError:
            return
        try:
            result: tuple[bool, object] = True, function(*arguments)
        except Exception as error:
            # Pickle drops the cause of an error, so it is sent along if it is sure to be picklable.
            cause = error.__cause__ if isinstance(error.__cause__, (OSError, MemoryError)) else None
            result = False, (error, cause)
        try:
            _send(results, result)
        except BrokenPipeError:
            return
        # A body of 30 MB may have grown to a gigabyte.
        del function, arguments, result
        memory.give_back()


def _end_with(parent: int) -> None:
    """Ends this process once its parent is gone: a call that does not end would never notice the closed pipe."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os._exit(1)


def _send(stream: IO[bytes], content: object) -> None:
    buffers: list[pickle.PickleBuffer] = []
    head = pickle.dumps(content, 5, buffer_callback=buffers.append)
    parts = [memoryview(head), *(buffer.raw() for buffer in buffers)]
    stream.write(struct.pack(f"<Q{len(parts)}Q", len(parts), *map(len, parts)))
    for part in parts:
        stream.write(part)
    stream.flush()


def _receive(stream: IO[bytes]) -> Any:
    (count,) = struct.unpack("<Q", _read_exactly(stream, 8))
    head, *buffers = [
        _read_exactly(stream, size) for size in struct.unpack(f"<{count}Q", _read_exactly(stream, 8 * count))
    ]
    return pickle.loads(head, buffers=buffers)


def _read_exactly(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found
