"""Requests that are waiting at the same time are predicted together.

Nobody waits for a batch to fill. While one batch is computed, what arrives queues up, and is the next batch; so batches
grow with the load by themselves, and a lone request goes through at once. A timed wait gains nothing over that: at 16
connections it more than halved the throughput.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field

import numpy as np

from serving.errors import BusyError

Arrays = Mapping[str, np.ndarray]
# A batch that takes no longer than this many seconds is computed on the event loop itself: handing it to a thread and
# back costs a good part of that, and nobody notices so short a pause.
SHORT = 1e-3


@dataclass
class _Waiting:
    images: np.ndarray
    answer: asyncio.Future[Arrays]


@dataclass
class Batcher:
    """Queue and batches of one model version; used from one event loop.

    Args:
        run: predicts a batch, in any thread.
        largest: images of a batch; a single request may be larger, and is then computed alone.
        queue: images that may wait; beyond that requests are refused.
        executor: where batches that take long are computed.
        measured: is told the images and seconds of each batch, in the thread that computed it.
    """

    run: Callable[[np.ndarray], Arrays]
    largest: int
    queue: int
    executor: Executor
    measured: Callable[[int, float], object] = lambda _images, _seconds: None
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _images: int = 0
    _busy: bool = False
    # Whether requests have been coming one by one lately.
    _quiet: bool = True
    # Seconds of an image in a batch, a running mean; infinite until the first is measured.
    _seconds: float = float("inf")

    @property
    def waiting(self) -> int:
        """Images that wait."""
        return self._images

    async def predict(self, images: np.ndarray) -> Arrays:
        """Predicts some images, together with whatever else is waiting.

        Args:
            images: uint8 `[n, height, width, channels]`.

        Returns:
            The outputs of the model, for these images.

        Raises:
            BusyError: too many images are waiting.
        """
        if self._images and self._images + len(images) > self.queue:
            # Nothing is known of the time before the first batch.
            after = self._images * self._seconds if math.isfinite(self._seconds) else 1.0
            raise BusyError(f"{self._images} images are waiting already, the limit is {self.queue}.", after)
        loop = asyncio.get_running_loop()
        if self._quiet and not self._busy and len(images) * self._seconds <= SHORT:
            # At once, without a turn of the loop before and after. Whatever came in the same turn is a batch.
            self._quiet = False
            loop.call_soon(self._turned)
            return self._timed(images)
        waiting = _Waiting(images, loop.create_future())
        self._waiting.append(waiting)
        self._images += len(images)
        if not self._busy:
            self._busy = True
            # After everything that the loop has already received, which is then in the same batch.
            loop.call_soon(self._next)
        return await waiting.answer

    def _turned(self) -> None:
        self._quiet = not self._busy

    def _next(self) -> None:
        batch = self._take()
        if not batch:
            self._busy = False
            return
        self._quiet = len(batch) == 1
        images = batch[0].images if len(batch) == 1 else np.concatenate([one.images for one in batch])
        loop = asyncio.get_running_loop()
        if len(images) * self._seconds <= SHORT:
            try:
                self._answer(batch, self._timed(images))
            except Exception as error:
                self._fail(batch, error)
            loop.call_soon(self._next)
            return
        computing = loop.run_in_executor(self.executor, self._timed, images)
        computing.add_done_callback(lambda done: self._done(batch, done))

    def _take(self) -> list[_Waiting]:
        """The requests of the next batch; those that were given up meanwhile are dropped."""
        batch: list[_Waiting] = []
        count = 0
        while self._waiting and (not batch or count + len(self._waiting[0].images) <= self.largest):
            one = self._waiting.popleft()
            self._images -= len(one.images)
            if not one.answer.done():
                batch.append(one)
                count += len(one.images)
        return batch

    def _timed(self, images: np.ndarray) -> Arrays:
        start = time.perf_counter()
        outputs = self.run(images)
        whole = time.perf_counter() - start
        self.measured(len(images), whole)
        taken = whole / max(len(images), 1)
        self._seconds = taken if self._seconds == float("inf") else 0.9 * self._seconds + 0.1 * taken
        return outputs

    def _done(self, batch: list[_Waiting], computing: asyncio.Future[Arrays]) -> None:
        error = computing.exception()
        if error is None:
            self._answer(batch, computing.result())
        else:
            self._fail(batch, error)
        self._next()

    @staticmethod
    def _answer(batch: list[_Waiting], outputs: Arrays) -> None:
        start = 0
        for one in batch:
            stop = start + len(one.images)
            if not one.answer.done():
                one.answer.set_result({name: array[start:stop] for name, array in outputs.items()})
            start = stop

    @staticmethod
    def _fail(batch: list[_Waiting], error: BaseException) -> None:
        for one in batch:
            if not one.answer.done():
                one.answer.set_exception(error)
