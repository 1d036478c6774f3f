"""Computes a model's outputs for the images or rows of a request, within the limits."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from serving import checks
from serving.engine.backends import Outputs, ServedVersion
from serving.engine.decoding import Decoder, Estimate, estimate
from serving.engine.processes import SMALL, Offload
from serving.engine.settings import Settings
from serving.errors import BusyError, GoneError, LimitError, SlowError
from serving.model import Seen
from serving.protocols.request import Request
from serving.tracing import Tracing

T = TypeVar("T")


class Deadlines:
    """One time limit for many tasks, enforced by one timer instead of one per task, as `asyncio.timeout` would start.

    Args:
        seconds: the limit.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        # In the order in which they expire.
        self._running: dict[_Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> "_Deadline":
        """Starts the clock for the current task."""
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
    """Result of a request."""

    served: ServedVersion
    """The version that predicted."""
    images: np.ndarray
    """Input of the net, uint8 `[n, height, width, channels]`; after each image file its digits, if they are several and
    were asked for; or rows, float32 `[n, columns]`."""
    outputs: Outputs
    """Computed outputs; see `serving.engine.backends.complete`."""
    boxes: list[np.ndarray | None] | None
    """The digits of each image file, see `serving.model.Seen`; None for pixels and rows."""
    crops: list[np.ndarray | None] | None
    """The crop of each image file, see `serving.model.Seen`; None for pixels and rows."""


@dataclass
class Predictor:
    """Predicts for all routes.

    Args:
        settings: the limits.
        executor: decodes small image files.
        refresh: updates the catalog; called in another thread.
        processes: child processes that read large bodies and write large responses.
        tracing: records how long each part takes.
    """

    settings: Settings
    executor: Executor
    refresh: Callable[[], None]
    processes: Offload = field(default_factory=lambda: Offload(1))
    tracing: Tracing = field(default_factory=Tracing)
    _decoder: Decoder = field(init=False)
    _deadlines: Deadlines = field(init=False)
    # Requests whose files are being decoded, and cheap files of these.
    _decoding: int = field(default=0, init=False)
    _light: int = field(default=0, init=False)
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def __post_init__(self) -> None:
        limits = self.settings
        self._deadlines = Deadlines(limits.timeout)
        self._decoder = Decoder(self.executor, limits.decoders, limits.large, limits.pixels)

    def close(self) -> None:
        """Ends the processes that decode large images."""
        self._decoder.close()

    async def predict(
        self, served: ServedVersion, request: Request, find: Callable[[], ServedVersion], maps: bool = False
    ) -> Predicted:
        """Decodes image files, if there are any, and predicts.

        Args:
            served: the model version.
            request: the images or rows.
            find: finds the version again, should it be gone.
            maps: whether to compute maps of gates, if the version has them.

        Returns:
            The result.

        Raises:
            UnknownModelError: the version is gone, and nothing replaces it.
            LimitError: the request has too many images or rows.
            ImageError: an image file cannot be decoded.
            BusyError: a queue is full.
            SlowError: the time limit is exceeded.
            OutputError: the model computed what cannot be an answer, or nothing.
        """
        start, count = time.perf_counter(), len(request.images if request.images is not None else request.files or ())
        if count > self.settings.images:
            unit = served.manifest.unit
            raise LimitError(f"{count} {unit}s in one request are more than the limit of {self.settings.images}.")
        try:
            predicted = await self._predict_in_time(served, request, find, maps)
        except Exception:
            served.statistics.fail(time.perf_counter() - start)
            raise
        predicted.served.statistics.succeed(count, time.perf_counter() - start)
        return predicted

    async def _predict_in_time(
        self, served: ServedVersion, request: Request, find: Callable[[], ServedVersion], maps: bool
    ) -> Predicted:
        try:
            with self._deadlines.start():
                try:
                    return await self._predict(served, request, maps)
                except GoneError:
                    # A TF Serving server may drop a version between two checks.
                    other = await self._find_again(served, find)
                    # Rows are made for the columns and categories of one version, and outputs asked for by its names.
                    before, after = served.manifest, other.manifest
                    if other is served or (before.columns, [*before.outputs]) != (after.columns, [*after.outputs]):
                        raise
                    return await self._predict(other, request, maps)
        except TimeoutError:
            raise self._too_slow() from None

    async def offload(self, size: int, function: Callable[..., T], *arguments: object) -> T:
        """Parses a body or formats a response; a large one in another process.

        Args:
            size: bytes of JSON to read, or numbers to write.
            function: see `serving.engine.processes.Offload.run`.
            arguments: arguments of the function.

        Raises:
            SlowError: the time limit is exceeded.
        """
        if size <= SMALL:
            return function(*arguments)
        try:
            with self._deadlines.start():
                return await self.processes.run(function, *arguments)
        except TimeoutError:
            raise self._too_slow() from None

    def _too_slow(self) -> SlowError:
        return SlowError(f"the prediction took longer than {self.settings.timeout:g} s. Try again later.")

    async def _predict(self, served: ServedVersion, request: Request, maps: bool) -> Predicted:
        images, boxes, crops, lone = request.images, None, None, False
        if images is None:
            with self.tracing.span("decode"):
                seen = await self._decode(served, request)
            # The first part gives an empty request its shape.
            empty = np.zeros((0, *served.manifest.input.shape[1:]), np.uint8)
            images = np.concatenate([empty, *(one.images for one in seen)])
            boxes, crops = [one.boxes for one in seen], [one.crop for one in seen]
            self._check_count(len(images))
            # Others that arrived during this one's decoding are being decoded now.
            lone = not self._decoding
        with self.tracing.span("predict"):
            outputs = await served.predict(images, lone)
            if maps and served.predict_maps:
                outputs = {**outputs, **await served.predict_maps(images)}
        checks.values(outputs, served.manifest)
        return Predicted(served, images, outputs, boxes, crops)

    def _check_count(self, count: int) -> None:
        if count > self.settings.images:
            raise LimitError(
                f"{count} images and digits in one request are more than the limit of {self.settings.images}."
            )

    async def _find_again(self, gone: ServedVersion, find: Callable[[], ServedVersion]) -> ServedVersion:
        async with self._refreshing:
            if (found := find()) is gone:
                await asyncio.get_running_loop().run_in_executor(self.executor, self.refresh)
                found = find()
        return found

    async def _decode(self, served: ServedVersion, request: Request) -> list[Seen]:
        files = request.files or []
        names = request.names or [f"image {number + 1}" for number in range(len(files))]
        costs = [estimate(file, served.side) for file in files]
        self._refuse_slow(costs)
        # Expensive files have a queue of their own, so that cheap ones are not refused because of them.
        light = sum(cost.light for cost in costs)
        if self._light and light and self._light + light > self.settings.queue:
            message = (
                f"{self._light} image files are waiting already, and this request has {light} more; the limit is "
                f"{self.settings.queue}."
            )
            raise BusyError(message, after=1.0)
        self._decoding += 1
        self._light += light
        start = time.perf_counter()
        try:
            # One by one: a request with many large images holds only one in memory, and keeps only one process busy.
            see = partial(served.see, segments=request.segments)
            return [
                await self._decoder.decode(file, name, see, side=served.side, grey=served.manifest.is_grey, cost=cost)
                for name, file, cost in zip(names, files, costs, strict=True)
            ]
        finally:
            self._decoding -= 1
            self._light -= light
            served.statistics.converted.add(time.perf_counter() - start)

    def _refuse_slow(self, costs: list[Estimate]) -> None:
        """Refuses a request whose files cannot be decoded in time: it would only keep others waiting."""
        seconds = sum(cost.seconds for cost in costs if cost.pixels)
        if len(costs) > 1 and seconds > self.settings.timeout:
            raise LimitError(
                f"the {len(costs)} image files of this request would take about {seconds:.0f} s to decode, and the "
                f"limit is {self.settings.timeout:g} s. Send fewer in one request, or smaller ones."
            )
