"""From a request's pictures to a model's outputs, within the limits."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from serving.backends import Outputs, Served
from serving.decoding import Decoder
from serving.errors import BusyError, GoneError, LimitError, OutputError, SlowError
from serving.offload import SMALL, Offload
from serving.protocols.request import Request
from serving.settings import Settings

T = TypeVar("T")


class Deadlines:
    """One time limit for many tasks, kept by one timer: that of `asyncio.timeout` costs 5 µs for each.

    Args:
        seconds: the limit.

    Example:
        with deadlines.start():
            await answer  # raises TimeoutError
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # In the order in which they expire.
        self._running: dict[_Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> "_Deadline":
        """Starts the time of the current task."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        deadline = _Deadline(self._running, loop.time() + self.seconds, task)
        self._running[deadline] = None
        if self._timer is None:
            self._timer = loop.call_at(deadline.end, self._expire, loop)
        return deadline

    def _expire(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, now = None, loop.time()
        for deadline in list(self._running):
            if deadline.end > now:
                self._timer = loop.call_at(deadline.end, self._expire, loop)
                return
            del self._running[deadline]
            deadline.expire()


class _Deadline:
    __slots__ = ("_cancelling", "_expired", "_running", "_task", "end")

    def __init__(self, running: "dict[_Deadline, None]", end: float, task: asyncio.Task[Any]) -> None:
        self._running, self.end, self._task = running, end, task
        self._expired, self._cancelling = False, task.cancelling()

    def expire(self) -> None:
        self._expired = True
        self._task.cancel()

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: object) -> None:
        if not self._expired:
            del self._running[self]
        # Unless somebody else cancelled the task too.
        elif self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error


class Predicted(NamedTuple):
    """What came of a request."""

    served: Served
    """The version that answered."""
    images: np.ndarray
    """What the net saw, uint8 `[n, height, width, channels]`."""
    outputs: Outputs
    """What it computed; see `serving.backends.complete`."""


@dataclass
class Predictor:
    """What all routes predict with.

    Args:
        settings: the limits.
        executor: where small picture files are decoded.
        look: brings what is served up to date; called in another thread.
        processes: where large bodies are read and large answers written.
    """

    settings: Settings
    executor: Executor
    look: Callable[[], None]
    processes: Offload = field(default_factory=lambda: Offload(1))
    _decoder: Decoder = field(init=False)
    _deadlines: Deadlines = field(init=False)
    _decoding: int = field(default=0, init=False)
    _looking: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        limits = self.settings
        self._deadlines = Deadlines(limits.timeout)
        self._decoder = Decoder(self.executor, limits.decoders, limits.large, limits.pixels)

    def close(self) -> None:
        """Ends the processes that decode large pictures."""
        self._decoder.close()

    async def predict(self, served: Served, request: Request, find: Callable[[], Served]) -> Predicted:
        """Decodes, if need be, and predicts.

        Args:
            served: the model version.
            request: the pictures.
            find: finds the version again, should it be gone.

        Returns:
            What came of it.

        Raises:
            UnknownModelError: the version is gone, and none is in its place.
            LimitError: too many pictures.
            PictureError: one of the files cannot be decoded.
            BusyError: too much is waiting.
            SlowError: it took too long.
            OutputError: the model gave what is no number.
        """
        count = len(request.images if request.images is not None else request.files or ())
        if count > self.settings.pictures:
            raise LimitError(f"{count} pictures in one request are more than the limit of {self.settings.pictures}.")
        try:
            with self._deadlines.start():
                try:
                    return await self._predicted(served, request)
                except GoneError:
                    # A server drops a version between two looks at what it has.
                    if (other := await self._found(served, find)) is served:
                        raise
                    return await self._predicted(other, request)
        except TimeoutError:
            raise self._slow() from None

    async def offload(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Reads a body or writes an answer, a large one in another process.

        Args:
            size: bytes of JSON to read, or numbers to write.
            function: see `serving.offload.Offload.run`.
            arguments: of the function.

        Raises:
            SlowError: it took too long.
        """
        if size <= SMALL:
            return function(*arguments)
        try:
            with self._deadlines.start():
                return await self.processes.run(function, *arguments)
        except TimeoutError:
            raise self._slow() from None

    def _slow(self) -> SlowError:
        return SlowError(f"the prediction took longer than {self.settings.timeout:g} s. Try again later.")

    async def _predicted(self, served: Served, request: Request) -> Predicted:
        images = request.images if request.images is not None else await self._seen(served, request)
        outputs = await served.predict(images)
        _check_numbers(outputs, served)
        return Predicted(served, images, outputs)

    async def _found(self, gone: Served, find: Callable[[], Served]) -> Served:
        """What is in the place of a version, after another look if need be."""
        async with self._looking:
            if (found := find()) is gone:
                await asyncio.get_running_loop().run_in_executor(self.executor, self.look)
                found = find()
        return found

    async def _seen(self, served: Served, request: Request) -> np.ndarray:
        files = request.files or []
        names = request.names or [f"picture {number + 1}" for number in range(len(files))]
        if self._decoding and self._decoding + len(files) > self.settings.queue:
            why = f"{self._decoding} picture files are waiting already, the limit is {self.settings.queue}."
            raise BusyError(why, after=1.0)
        self._decoding += len(files)
        try:
            # One after another: a request of many large pictures holds one of them in memory, and one process.
            decode = self._decoder.decode
            seen = [await decode(file, name, served.see) for name, file in zip(names, files, strict=True)]
        finally:
            self._decoding -= len(files)
        return np.stack(seen) if seen else np.zeros((0, *served.manifest.input.shape[1:]), np.uint8)


def _check_numbers(outputs: Outputs, served: Served) -> None:
    # JSON has no word for NaN, and a class that was found from it would look like an answer.
    for name, value in outputs.items():
        if not np.isfinite(value).all():
            manifest, wrong = served.manifest, int(np.argmin(np.isfinite(value).all(axis=-1)))
            raise OutputError(
                f"version {manifest.version} of model {manifest.name!r} gave {name} that are no numbers (NaN or "
                f"infinite) for picture {wrong + 1}. The model is at fault, not the request: serve another version."
            )
