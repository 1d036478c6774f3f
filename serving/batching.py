"""Requests that are waiting at the same time are predicted together.

Nobody waits for a batch to fill. While batches are computed, one on each core, what arrives queues up, and is the next
batch; so batches grow with the load by themselves, and a lone request goes through at once. A timed wait gains nothing
over that: at 16 connections it more than halved the throughput.
"""

import asyncio
import math
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from serving.errors import BusyError

Arrays = Mapping[str, np.ndarray]
# A batch that takes no longer than this many seconds is computed on the event loop itself: handing it to a thread and
# back costs a good part of that, and nobody notices so short a pause.
SHORT = 1e-3
# A batch from this many seconds on is computed beside another one: two short ones cost more than one of both.
LONG = 3e-3


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
        parallel: batches that are computed at the same time; ONNX Runtime does not hold Python's lock.
        measured: is told the images and seconds of each batch, in the thread that computed it.
    """

    run: Callable[[np.ndarray], Arrays]
    largest: int
    queue: int
    executor: Executor
    measured: Callable[[int, float], object] = lambda _images, _seconds: None
    parallel: int = 1
    _waiting: deque[_Waiting] = field(default_factory=deque)
    _images: int = 0
    _running: int = 0
    # Whether the loop will look at what waits.
    _woken: bool = False
    # Whether requests have been coming one by one lately.
    _quiet: bool = True
    # Seconds of a core for an image in a batch, a running mean; infinite until the first is measured.
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
            after = self._images * self._seconds / self.parallel if math.isfinite(self._seconds) else 1.0
            raise BusyError(f"{self._images} images are waiting already, the limit is {self.queue}.", after)
        loop = asyncio.get_running_loop()
        if self._quiet and not self._busy() and len(images) * self._seconds <= SHORT:
            # At once, without a turn of the loop before and after. Whatever came in the same turn is a batch.
            self._quiet = False
            loop.call_soon(self._turned)
            return self._timed(images)
        waiting = _Waiting(images, loop.create_future())
        self._waiting.append(waiting)
        self._images += len(images)
        # After everything that the loop has already received, which is then in the same batch.
        self._wake(loop)
        return await waiting.answer

    def _busy(self) -> bool:
        return self._woken or self._running > 0

    def _turned(self) -> None:
        self._quiet = not self._busy()

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._woken and self._running < self.parallel:
            self._woken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        """Computes what waits, as far as there are cores for it."""
        self._woken = False
        loop = asyncio.get_running_loop()
        while self._is_worth_a_core() and (batch := self._take()):
            self._quiet = len(batch) == 1
            images = batch[0].images if len(batch) == 1 else np.concatenate([one.images for one in batch])
            if len(images) * self._seconds <= SHORT:
                try:
                    self._answer(batch, self._timed(images))
                except Exception as error:
                    self._fail(batch, error)
                self._wake(loop)
                return
            self._running += 1
            computing = loop.run_in_executor(self.executor, self._timed, images)
            computing.add_done_callback(partial(self._done, batch))

    def _is_worth_a_core(self) -> bool:
        """Whether a batch shall be made: what is short waits for a batch that is computed, or for more of its kind."""
        return not self._running or (self._running < self.parallel and self._images * self._seconds > LONG)

    def _take(self) -> list[_Waiting]:
        """The requests of the next batch; those that were given up meanwhile are dropped."""
        batch: list[_Waiting] = []
        count, most = 0, self.largest
        share = math.ceil(self._images / (self.parallel - self._running))
        if share * self._seconds > LONG:
            # Each core that is free takes as many.
            most = min(most, share)
        while self._waiting and (not batch or count + len(self._waiting[0].images) <= most):
            one = self._waiting.popleft()
            self._images -= len(one.images)
            if not one.answer.done():
                batch.append(one)
                count += len(one.images)
        return batch

    def _timed(self, images: np.ndarray) -> Arrays:
        start, used = time.perf_counter(), time.thread_time()
        outputs = self.run(images)
        # What it would take with nothing beside it: a wait for a core or for Python's lock says nothing of the net.
        used = time.thread_time() - used
        self.measured(len(images), time.perf_counter() - start)
        taken = used / max(len(images), 1)
        self._seconds = taken if self._seconds == float("inf") else 0.9 * self._seconds + 0.1 * taken
        return outputs

    def _done(self, batch: list[_Waiting], computing: asyncio.Future[Arrays]) -> None:
        self._running -= 1
        error = computing.exception()
        if error is None:
            self._answer(batch, computing.result())
        else:
            self._fail(batch, error)
        # After whoever asks again at once: two groups that take turns would stay so.
        self._wake(asyncio.get_running_loop())

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
