"""Where picture files are decoded: small ones in this process, all others in processes of their own.

A file that takes long, or all memory, takes it from a process that is limited in both, and that the system runs where
nothing else wants to: whoever sends a digit does not notice. Threads would not do. Much of what Pillow does with a
header is Python, for whose lock all others wait, and a thread cannot be ended.
"""

import asyncio
import heapq
import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from serving import memory, pictures
from serving.errors import BusyError, LimitError, ServingError
from serving.glance import glance

# A file may be overtaken by those that come up to so many times its own work later.
PATIENCE = 10.0
# Seconds of a core for one file, and bytes beyond what the process has when it starts.
CPU, MEMORY = 5, 384 * 2**20
# Of the estimate, which is good to a factor of two: a file of more is not even tried.
HOPELESS = 20.0
# Added to the nice value of these processes; 19 is the most.
_NICE = 10
SIMPLER = "Send a smaller picture, or the same in a simpler form."
_START = "from serving.decoding import work; work()"

# Makes a net's input, uint8 [height, width, channels], of uint8 [height, width, 4].
See = Callable[[np.ndarray], np.ndarray]
Work = Callable[[], np.ndarray]


@dataclass
class Decoder:
    """Decodes files and makes a net's input of each; used from one event loop.

    Args:
        light: where files of little work are decoded.
        processes: how many there may be for the others; each is started when it is first needed.
        queue: files that may wait for these; more are refused.
        pixels: the largest picture, width times height.
    """

    light: Executor
    processes: int
    queue: int
    pixels: int
    _heavy: ThreadPoolExecutor = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # When it is due, in the order of arrival, and its estimated seconds.
    _waiting: list[tuple[float, int, float, Future[np.ndarray], Work]] = field(default_factory=list, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    _children: list["Child"] = field(default_factory=list, init=False)
    _local: threading.local = field(default_factory=threading.local, init=False)

    def __post_init__(self) -> None:
        self._heavy = ThreadPoolExecutor(self.processes, "decode")

    async def decode(self, file: bytes, name: str, see: See) -> np.ndarray:
        """Decodes a file.

        Args:
            file: the whole of it.
            name: what to call it in messages.
            see: what to do with the pixels, in another thread.

        Returns:
            What `see` gives.

        Raises:
            PictureError: the file cannot be decoded.
            LimitError: it would take too much time or memory.
            BusyError: too many wait already.
        """
        found = glance(file)
        if found.light:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self.light, lambda: see(pictures.decode(file, name, self.pixels)))
        if found.seconds > HOPELESS:
            raise LimitError(f"{name} would take about {found.seconds:.0f} s to decode. {SIMPLER}")
        return await asyncio.wrap_future(self._queued(found.seconds, lambda: see(self._child().decode(file, name))))

    def close(self) -> None:
        """Ends the processes; nothing may be asked any more."""
        self._heavy.shutdown(cancel_futures=True)
        for child in self._children:
            child.close()

    def _queued(self, seconds: float, work: Work) -> Future[np.ndarray]:
        future: Future[np.ndarray] = Future()
        with self._lock:
            if len(self._waiting) >= self.queue:
                why = f"{len(self._waiting)} large picture files are waiting already, the limit is {self.queue}."
                raise BusyError(why, after=sum(one[2] for one in self._waiting) / self.processes)
            due = time.monotonic() + PATIENCE * seconds
            heapq.heappush(self._waiting, (due, next(self._numbers), seconds, future, work))
        # Whoever is free takes what is due first, which need not be this.
        self._heavy.submit(self._next)
        return future

    def _next(self) -> None:
        with self._lock:
            *_, future, work = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)

    def _child(self) -> "Child":
        """The process of this thread."""
        child: Child | None = getattr(self._local, "child", None)
        if child is None:
            child = self._local.child = Child(self.pixels)
            self._children.append(child)
        return child


class Child:
    """A process that decodes one file after another; should it end, another takes its place.

    Args:
        pixels: the largest picture, width times height.
        seconds: of a core, for one file.
        room: bytes beyond what the process has when it starts.

    Example:
        rgba = Child(10**6).decode(Path("seven.jpg").read_bytes(), "seven.jpg")
    """

    def __init__(self, pixels: int, seconds: int = CPU, room: int = MEMORY) -> None:
        self._limits = pixels, seconds, room
        self._running: tuple[subprocess.Popen[bytes], Connection] | None = None

    def decode(self, file: bytes, name: str) -> np.ndarray:
        """Decodes a file as `serving.pictures.decode` does.

        Raises:
            PictureError: the file cannot be decoded.
            LimitError: it would take too much time or memory.
        """
        if self._running is not None and self._running[0].poll() is not None:
            # The system ended it between two files.
            self.close()
        _, line = self._running = self._running or self._started()
        try:
            line.send(name)
            line.send_bytes(file)
            answer: np.ndarray | ServingError = line.recv()
        except (OSError, EOFError):
            self.close()
            _, seconds, room = self._limits
            raise LimitError(
                f"{name} takes more than {seconds} s or {room // 2**20} MiB to decode. {SIMPLER}"
            ) from None
        if isinstance(answer, ServingError):
            raise answer
        return answer

    def close(self) -> None:
        """Ends the process."""
        if self._running is not None:
            process, line = self._running
            line.close()
            process.kill()
            process.wait()
            self._running = None

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        ours, theirs = multiprocessing.Pipe()
        # Not by `multiprocessing`: its processes import the program again, and at its end they are waited for.
        code = Path(__file__).parents[1]
        process = subprocess.Popen(
            [sys.executable, "-c", _START, str(theirs.fileno()), *map(str, self._limits)],
            stdin=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": os.pathsep.join((str(code), os.environ.get("PYTHONPATH", "")))},
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        return process, ours


def work() -> None:
    """The program of such a process: decodes until there is nobody at the other end of the line."""
    # Signals are sent to whole groups; this one ends with the process that it works for, and not before.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    handle, pixels, seconds, room = map(int, sys.argv[1:])
    line = Connection(handle)
    memory.one_heap()
    os.nice(_NICE)
    # Pillow's about damaged files, which are not for the log of the endpoint.
    warnings.simplefilter("ignore")
    _limit_memory(room)
    with suppress(EOFError, OSError):
        while True:
            name, file = line.recv(), line.recv_bytes()
            _limit_time(seconds)
            try:
                answer: np.ndarray | ServingError = pictures.decode(file, name, pixels)
            except ServingError as error:
                answer = error
            line.send(answer)
            del file, answer
            memory.give_back()


def _limit_memory(room: int) -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_time(seconds: int) -> None:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # At the limit the system ends the process, whatever it is doing.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, most))
