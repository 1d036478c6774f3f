"""Where picture files are decoded: small ones in this process, all others in processes of their own.

A file that takes long, or all memory, takes it from a process that is limited in both, and that the system runs where
nothing else wants to: whoever sends a digit does not notice. Threads would not do. Much of what Pillow does with a
header is Python, for whose lock all others wait, and a thread cannot be ended.
"""

import asyncio
import heapq
import itertools
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from serving import pictures
from serving.child import Children, EndedError
from serving.errors import BusyError, LimitError
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
        seconds: of a core, that a process may take for one file.
        room: bytes that a process may take beyond what it has when it starts.
    """

    light: Executor
    processes: int
    queue: int
    pixels: int
    seconds: int = CPU
    room: int = MEMORY
    _children: Children = field(init=False)
    _heavy: ThreadPoolExecutor = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # When it is due, in the order of arrival, and its estimated seconds.
    _waiting: list[tuple[float, int, float, Future[np.ndarray], Work]] = field(default_factory=list, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)

    def __post_init__(self) -> None:
        self._children = Children(_limit, self.room)
        # Each waits for one process.
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
        return await asyncio.wrap_future(self._queued(found.seconds, lambda: see(self.decode_limited(file, name))))

    def decode_limited(self, file: bytes, name: str) -> np.ndarray:
        """Decodes a file in a limited process as `serving.pictures.decode` does, and waits for it.

        Raises:
            PictureError: the file cannot be decoded.
            LimitError: it would take too much time or memory.
        """
        try:
            return self._children.call(_decode, file, name, self.pixels, self.seconds)
        except EndedError:
            raise LimitError(
                f"{name} takes more than {self.seconds} s or {self.room // 2**20} MiB to decode. {SIMPLER}"
            ) from None

    def close(self) -> None:
        """Ends the processes; nothing may be asked any more."""
        self._heavy.shutdown(cancel_futures=True)
        self._children.close()

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


def _limit(room: int) -> None:
    """Limits a process, once it has what decoding needs."""
    import resource

    os.nice(_NICE)
    # Pillow's about damaged files, which are not for the log of the endpoint.
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _decode(file: bytes, name: str, pixels: int, seconds: int) -> np.ndarray:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # At the limit the system ends the process, whatever it is doing.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, most))
    return pictures.decode(file, name, pixels)
