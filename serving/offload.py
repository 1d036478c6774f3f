"""Work that would stop the event loop is done in processes of their own.

A JSON parser holds Python's lock from the first byte to the last, so that a thread is of no use: 30 MB of nested lists
took 12 s, in which nobody was answered.
"""

import asyncio
import pickle
import struct
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import IO, Any, Self, TypeVar

from serving import memory
from serving.errors import BusyError

T = TypeVar("T")
# Bytes of JSON, or numbers in an answer, that the event loop reads and writes itself, in two or three milliseconds.
SMALL = 2**15


class Offload:
    """Runs functions in other processes; there are none until the first.

    Args:
        processes: how many there may be.

    Example:
        with Offload(1) as offload:
            parsed = await offload.run(orjson.loads, body)
    """

    def __init__(self, processes: int) -> None:
        # Each waits for one process.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="offload")
        self._idle: deque[_Process] = deque()
        self._all: set[_Process] = set()
        self._closed = False

    def __enter__(self) -> Self:
        """Itself; it is closed at the end of the block."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Ends the processes."""
        self.close()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function.

        Args:
            function: of a module, without side effects.
            arguments: that can be pickled, as must be what it returns and raises.

        Returns:
            What it returns.

        Raises:
            BusyError: the process was killed, twice.
        """
        # Bytes are handed over as they are, arrays are so anyway: a copy of many would stop the event loop, too.
        given = [pickle.PickleBuffer(one) if isinstance(one, (bytes, bytearray)) else one for one in arguments]
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, function, given)

    def close(self) -> None:
        """Ends the processes; nobody waits for what they are doing."""
        self._closed = True
        for process in self._all.copy():
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._all:
            process.end()

    def _run(self, function: Callable[..., T], arguments: list[object]) -> T:
        for again in (False, True):
            # One that is warm, the first time; there are as many threads as processes.
            process = self._idle.pop() if self._idle and not again else self._started()
            try:
                done, result = process.call(function, arguments)
            except (EOFError, OSError):
                # The system may have killed it for its memory, or somebody else for no reason.
                self._all.remove(process)
                process.end()
                if self._closed:
                    break
                continue
            self._idle.append(process)
            if done:
                return result
            raise result
        raise BusyError("what reads large requests and writes large answers was ended.", after=1.0)

    def _started(self) -> "_Process":
        process = _Process()
        self._all.add(process)
        return process


class _Process:
    """A Python that reads calls and writes answers; not of `multiprocessing`, which would run the main module again."""

    def __init__(self) -> None:
        program = f"import sys; sys.path[:] = {sys.path!r}; from serving import offload; offload.work()"
        # In a session of its own, so that a Ctrl-C is not sent to it; it ends when nobody can write to it any more.
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def call(self, function: Callable[..., T], arguments: list[object]) -> tuple[bool, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        _send(self._process.stdin, (function, arguments))
        return _receive(self._process.stdout)

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        self.kill()
        # What was not written any more is of no use.
        with suppress(BrokenPipeError):
            self._process.communicate()


def work() -> None:
    """Answers calls from standard input until its end."""
    calls, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            function, arguments = _receive(calls)
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except Exception as error:
            answer = False, error
        _send(answers, answer)
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
