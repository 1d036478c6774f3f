"""Decodes image files: cheap ones in this process, all others in child processes.

An expensive file is decoded in a low-priority process with limits on time and memory, so that small images do not wait
for it. Threads would not do: Pillow handles headers largely in Python, holding the GIL that all other requests need,
and a thread cannot be killed.

The nanoseconds were measured on one core of an EPYC (`benchmarks.photographs` at commit 0691d5e). They decide where and
in which order files are decoded; being off by a factor of two does no harm.
"""

import asyncio
import heapq
import itertools
import struct
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from serving import image_files
from serving.engine.processes import NICE, ChildProcesses, EndedError
from serving.errors import BusyError, ImageError, LimitError
from serving.image_files import RATIOS, SIDE, jpeg_ratio, reduction
from serving.jpeg_scans import remaining

# A file may be overtaken by files that arrive within this many times its own estimated time.
PATIENCE = 10.0
# Limits of a decoding process: CPU seconds per file, and bytes beyond those it has when it starts.
CPU, MEMORY = 5, 384 * 2**20
# Files with a higher estimate, in seconds, are refused without an attempt.
HOPELESS = 20.0
# Files up to this estimate, in seconds, are decoded in the endpoint's own process.
LIGHT = 0.005
_ADVICE = "Send a smaller image, or the same in a simpler form."

_PNG, _JPEG = b"\x89PNG\r\n\x1a\n", b"\xff\xd8"
# By colour type: grey, colours, palette, grey with alpha, colours with alpha.
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
# Maximum number of header segments to scan, and bytes of text, colour profile and EXIF in a file that counts as simple.
_SEGMENTS, _EXTRAS = 64, 2**14
# Compressed chunks, before or after the pixels: a few bytes of them can expand to a million.
_COMPRESSED = (b"zTXt", b"iTXt", b"iCCP")
# Segments before the frame of a JPEG file: codes, tables, the interval of restarts, applications' data and comments.
# Decoders differ in how they read others, fill bytes and what is no segment.
_JPEG_SEGMENTS = frozenset((0xC4, 0xCC, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)))
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# Frames of progressive JPEG files, in which each scan refines all pixels, and the minimum number of scans to assume.
_PROGRESSIVE, _SCANS = (0xC2, 0xC6, 0xCA, 0xCE), 10
# Nanoseconds per pixel of `picture.onnx`, and per row of a file, which may be one pixel wide.
_INPUT_NS, _ROW_NS = 15, 50

T = TypeVar("T")


class Estimate(NamedTuple):
    """Estimated cost of an image file."""

    seconds: float
    """Time to decode the file and to convert it to the input of a net."""
    simple: bool
    """True if the header holds nothing unusual."""
    pixels: int = 0
    """Width times height; 0 if they are unknown, as is the time then."""

    @property
    def light(self) -> bool:
        """True if the file is simple and cheap."""
        return self.simple and self.seconds <= LIGHT


# For other formats, damaged files and unusual ones.
UNKNOWN = Estimate(1.0, simple=False)


def estimate(encoded: bytes, side: int = SIDE) -> Estimate:
    """Estimates the cost of an image file from its header: 6 kB can hold 50 million pixels.

    Args:
        encoded: the whole file.
        side: see `serving.image_files.decode`.

    Example:
        estimate(Path("photograph.jpg").read_bytes()).seconds  # 0.04
    """
    try:
        if encoded.startswith(_PNG):
            return _estimate_png(encoded, side)
        if encoded.startswith(_JPEG):
            return _estimate_jpeg(encoded, side)
    except (struct.error, IndexError):
        # The file ends within its header.
        pass
    return UNKNOWN


@dataclass
class Decoder:
    """Decodes files and converts them to inputs of a net; used from one event loop.

    Args:
        executor: decodes cheap files.
        processes: maximum number of processes for the others, which start on demand.
        queue: files that may wait for these; more are refused.
        pixels: the largest image, width times height.
        seconds: CPU seconds that a process may spend on one file.
        memory: bytes that a process may use beyond those it has when it starts.
    """

    executor: Executor
    processes: int
    queue: int
    pixels: int
    seconds: int = CPU
    memory: int = MEMORY
    _children: ChildProcesses = field(init=False)
    _threads: ThreadPoolExecutor = field(init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    # Due time, order of arrival, estimated seconds, result, work.
    _waiting: list[tuple[float, int, float, Future[Any], Callable[[], Any]]] = field(default_factory=list, init=False)
    _numbers: Iterator[int] = field(default_factory=itertools.count, init=False)
    # Files that are being decoded in this process.
    _here: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._children = ChildProcesses(_limit, self.memory, nice=NICE)
        # Each thread waits for one process.
        self._threads = ThreadPoolExecutor(self.processes, "decode")

    async def decode(
        self,
        file: bytes,
        name: str,
        to_input: Callable[[np.ndarray], T],
        *,
        side: int = SIDE,
        grey: bool = False,
        cost: Estimate | None = None,
    ) -> T:
        """Decodes a file.

        Args:
            file: its whole content.
            name: used in messages.
            to_input: converts the pixels, uint8 [height, width, 4], in another thread.
            side: see `serving.image_files.decode`.
            grey: see `serving.image_files.decode`.
            cost: its `estimate`, if that is known.

        Returns:
            The result of `to_input`.

        Raises:
            ImageError: the file cannot be decoded, or has too many pixels.
            LimitError: it would take too much time or memory.
            BusyError: the queue is full.
        """
        cost = cost or estimate(file, side)
        if cost.light:
            return await self._decode_here(lambda: to_input(image_files.decode(file, name, self.pixels, side, grey)))
        if cost.seconds > HOPELESS:
            if cost.pixels > self.pixels:
                raise ImageError(f"{name} is larger than {self.pixels:,} pixels. Send a smaller image.")
            raise LimitError(f"{name} would take about {cost.seconds:.0f} s to decode. {_ADVICE}")
        # No name for the future: an error's traceback would refer to it, and both would keep the file alive.
        return await asyncio.wrap_future(
            self._enqueue(cost.seconds, lambda: to_input(self.decode_limited(file, name, side, grey)))
        )

    def decode_limited(self, file: bytes, name: str, side: int = SIDE, grey: bool = False) -> np.ndarray:
        """Decodes a file like `serving.image_files.decode`, in a limited process, and waits for it.

        Raises:
            ImageError: the file cannot be decoded.
            LimitError: it takes too much time or memory.
        """
        try:
            return self._children.call(_decode, self.seconds, file, name, self.pixels, side, grey)
        except EndedError:
            raise LimitError(
                f"{name} takes more than {self.seconds} s or {self.memory // 2**20} MiB to decode. {_ADVICE}"
            ) from None

    def close(self) -> None:
        """Ends the processes; no further calls are allowed. A conversion that never ends is not waited for."""
        self._children.close()
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _decode_here(self, work: Callable[[], T]) -> T:
        self._here += 1
        try:
            # Lets the other requests begin that have arrived.
            await asyncio.sleep(0)
            # Another thread pays only if several files can be decoded side by side.
            return work() if self._here == 1 else await asyncio.get_running_loop().run_in_executor(self.executor, work)
        finally:
            self._here -= 1

    def _enqueue(self, seconds: float, work: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if len(self._waiting) >= self.queue:
                message = f"{len(self._waiting)} large image files are waiting already; the limit is {self.queue}."
                raise BusyError(message, after=sum(one[2] for one in self._waiting) / self.processes)
            due = time.monotonic() + PATIENCE * seconds
            entry = (due, next(self._numbers), seconds, future, work)
            heapq.heappush(self._waiting, entry)
        try:
            # The next free thread takes the file that is due first, not necessarily this one.
            self._threads.submit(self._run_next)
        except RuntimeError:
            # The system can start no thread for now; another one may have taken the file.
            with self._lock:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    heapq.heapify(self._waiting)
                    raise
        return future

    def _run_next(self) -> None:
        with self._lock:
            if not self._waiting:
                # `submit` had put this call in its queue before it found that no thread could be started.
                return
            *_, future, work = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        finally:
            # The traceback refers to this frame: the cycle would keep both alive, and the file with them.
            del future, work


def _estimate_png(encoded: bytes, side: int) -> Estimate:
    width, height, bits, colour, _, _, interlaced = struct.unpack_from(">IIBBBBB", encoded, 16)
    channels = _CHANNELS.get(colour, 4) * (2 if bits == 16 else 1)
    reading = 8e-9 * len(encoded)
    seconds = _seconds((width, height), side, (2 + 3 * channels) * (2 if interlaced else 1), reading)
    at, extras, light = len(_PNG), 0, seconds <= LIGHT and not any(name in encoded for name in _COMPRESSED)
    # Pillow handles each chunk in Python, including those after the pixels.
    for number in range(_SEGMENTS + min(len(encoded), 2**20) // 1024):
        size, kind = struct.unpack_from(">I4s", encoded, at)
        if (kind == b"IHDR") != (number == 0):
            # Pillow takes the last header that it finds.
            return UNKNOWN
        if kind == b"IEND":
            return Estimate(seconds, light and extras <= _EXTRAS, width * height)
        if kind == b"IDAT" and not light:
            return Estimate(seconds, simple=False, pixels=width * height)
        extras += size if kind not in (b"IHDR", b"PLTE", b"tRNS", b"IDAT") else 0
        at += 12 + size
    return UNKNOWN


def _estimate_jpeg(encoded: bytes, side: int) -> Estimate:
    at, extras = len(_JPEG), 0
    for _ in range(_SEGMENTS):
        mark, kind, size = struct.unpack_from(">BBH", encoded, at)
        if mark == 0xFF and kind in _JPEG_FRAMES:
            height, width, components = struct.unpack_from(">HHB", encoded, at + 5)
            if size != 8 + 3 * components or not width * height:
                return UNKNOWN
            ratio = jpeg_ratio(width, height, side)
            each = 1.5 if ratio > 1 else 5.0
            # A scan without data costs 14 bytes and a pass over all pixels.
            codes = np.frombuffer(encoded, np.uint8, min(len(encoded), 2**20))
            scans = np.flatnonzero((codes[:-1] == 0xFF) & (codes[1:] == 0xDA)).tolist()
            passes = max(len(scans), _SCANS) if kind in _PROGRESSIVE else max(len(scans) - 1, 0)
            seconds = _seconds((width, height), side, each + passes, 6e-9 * len(encoded))
            simple = extras <= _EXTRAS
            # Not of the rarer kinds of progressive files: see `serving.jpeg_scans`.
            if kind == _PROGRESSIVE[0] and ratio == max(RATIOS) and len(scans) <= _SEGMENTS:
                # A damaged file would still be decoded whole, which is too much for the endpoint's own process.
                simple = simple and seconds <= LIGHT
                if left := remaining(encoded, at, scans):
                    seconds = _seconds((width, height), side, each + left[0], 6e-9 * left[1])
            return Estimate(seconds, simple, width * height)
        if mark != 0xFF or kind not in _JPEG_SEGMENTS or size < 2:
            return UNKNOWN
        extras += size if 0xE0 <= kind <= 0xEF or kind == 0xFE else 0
        at += 2 + size
    return UNKNOWN


def _seconds(size: tuple[int, int], side: int, pixel_ns: float, reading: float) -> float:
    """Estimates the time to decode a file, scale it down, and convert the rest to the input of a net.

    Args:
        size: width and height.
        side: see `serving.image_files.decode`.
        pixel_ns: nanoseconds per pixel of the file.
        reading: seconds that its bytes take.
    """
    pixels = size[0] * size[1]
    return reading + 1e-9 * (pixels * pixel_ns + size[1] * _ROW_NS + pixels / reduction(*size, side) ** 2 * _INPUT_NS)


def _limit(memory: int) -> None:
    """Sets the limits of a decoding process, after the decoders have been imported."""
    import resource

    # Pillow's warnings about damaged files do not belong in the log of the endpoint.
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(FileNotFoundError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + memory
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _decode(seconds: int, *arguments: Any) -> np.ndarray:
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF)
    _, most = resource.getrlimit(resource.RLIMIT_CPU)
    # The system kills the process at this limit, whatever it is doing.
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + seconds, most))
    return image_files.decode(*arguments)
