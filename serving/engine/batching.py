"""Batches requests that are waiting at the same time.

No request waits for a batch to fill. While batches are computed, one per core, arriving requests queue up and form the
next batch: batches grow with the load, and a lone request is computed at once. Waiting a fixed time for more requests
would only add to the latency.

If a batch fails, one of its requests may be the cause: each is computed again, alone.
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
from serving.statistics import Statistics

Arrays = Mapping[str, np.ndarray]
# A batch of at most this many seconds is computed on the event loop itself: handing it to a thread would take a good
# part of that time, and so short a pause goes unnoticed.
SHORT = 1e-3
# The same for a request that is known to be the only one: as long as decoding its image on the loop may take.
LONE = 5e-3
# A batch runs in parallel with another only if its images take longer than this: one batch of both would take as much
# longer than each of them. Handing two batches to threads costs more than a shorter time saves.
LONG = 1e-3
# Core seconds in which the cost of batches is measured, if three calls with each size do not take longer.
MEASURED = 0.02


@dataclass
class _Waiting:
    images: np.ndarray
    result: asyncio.Future[Arrays]
    since: float = field(default_factory=time.perf_counter)


@dataclass(frozen=True)
class Cost:
    """Core seconds of a batch.

    Args:
        fixed: those that it takes with any number of images: most of all in a net of many small layers.
        image: those that each image adds; infinite if unknown.
    """

    fixed: float = 0.0
    image: float = math.inf


def measure_cost(run: Callable[[np.ndarray], object], inputs: np.ndarray) -> Cost:
    """Measures the cost of batches.

    Args:
        run: predicts a batch.
        inputs: images or rows, at least two.

    Example:
        measure_cost(model.predict, images).image
    """
    # The first calls are slow. Of a slow net, one more image says enough.
    several = inputs if _core_seconds(run, inputs[:1]) <= LONE else inputs[:2]
    times: list[tuple[float, float]] = []
    while len(times) < 3 or np.sum(times) < MEASURED:
        times.append((_core_seconds(run, inputs[:1]), _core_seconds(run, several)))
    one, more = np.min(times, axis=0).tolist()
    image = max((more - one) / (len(several) - 1), 0.0)
    return Cost(max(one - image, 0.0), image)


def _core_seconds(run: Callable[[np.ndarray], object], inputs: np.ndarray) -> float:
    # CPU time: waiting for a core or for the GIL says nothing about the net.
    start = time.thread_time()
    run(inputs)
    return time.thread_time() - start


@dataclass
class Batcher:
    """Queue and batches of one model version; used from one event loop.

    Args:
        run: predicts a batch, in any thread.
        largest: images or rows of a batch; a larger single request is computed alone.
        queue: images or rows that may wait; more are refused.
        executor: computes long batches.
        parallel: batches computed at the same time; ONNX Runtime releases the GIL.
        measured: called with the images and seconds of each batch, in the thread that computed it.
        statistics: records waiting and computing.
        unit: name of one image or row in messages.
        cost: cost of batches, as measured before the first; after it, that of an image follows the batches.
    """

    run: Callable[[np.ndarray], Arrays]
    largest: int
    queue: int
    executor: Executor
    measured: Callable[[int, float], object] = lambda _images, _seconds: None
    parallel: int = 1
    statistics: Statistics = field(default_factory=Statistics)
    unit: str = "image"
    cost: Cost = Cost()
    _waiting: deque[_Waiting] = field(default_factory=deque)
    # Requests of failed batches, each of which is computed alone, before all others: they have waited longest.
    _retried: deque[_Waiting] = field(default_factory=deque)
    # Images of both.
    _images: int = 0
    _running: int = 0
    # Whether `_next` is scheduled.
    _woken: bool = False
    # Whether requests have recently arrived one by one.
    _quiet: bool = True
    # Running mean of the core seconds that each image adds to a batch. Infinite before the first, which is computed in
    # a thread: it may never end.
    _seconds: float = math.inf

    @property
    def waiting(self) -> int:
        """Images in the queue."""
        return self._images

    async def predict(self, images: np.ndarray, lone: bool = False) -> Arrays:
        """Predicts images, together with others that are waiting.

        Args:
            images: uint8 `[n, height, width, channels]`; or rows, float32 `[n, columns]`.
            lone: whether no other request is known to be in progress.

        Returns:
            The outputs of the model for these images.

        Raises:
            BusyError: the queue is full.
        """
        if self._images and self._images + len(images) > self.queue:
            after = self._estimate(self._images) / self.parallel if math.isfinite(self._seconds) else 1.0
            raise BusyError(f"{self._images} {self.unit}s are waiting already; the limit is {self.queue}.", after)
        loop = asyncio.get_running_loop()
        if self._quiet and not self._busy() and self._estimate(len(images)) <= (LONE if lone else SHORT):
            # Computed at once, without waiting for the loop before and after. Others of this iteration form a batch.
            self._quiet = False
            loop.call_soon(self._end_turn)
            self.statistics.waited.add(0.0)
            return self._timed(images)
        waiting = _Waiting(images, loop.create_future())
        self._waiting.append(waiting)
        self._images += len(images)
        # Runs after the loop has handled everything it has already received, which joins the same batch.
        self._wake(loop)
        return await waiting.result

    def _estimate(self, images: int) -> float:
        """Estimates the core seconds of a batch."""
        return self.cost.fixed + images * self._seconds

    def _busy(self) -> bool:
        return self._woken or self._running > 0

    def _end_turn(self) -> None:
        self._quiet = not self._busy()

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._woken and self._running < self.parallel:
            self._woken = True
            loop.call_soon(self._next)

    def _next(self) -> None:
        """Starts batches from the queue while there are free cores."""
        self._woken = False
        loop = asyncio.get_running_loop()
        while self._is_worth_a_core() and (batch := self._take()):
            self._quiet = len(batch) == 1
            images = batch[0].images if len(batch) == 1 else np.concatenate([one.images for one in batch])
            if self._estimate(len(images)) <= SHORT:
                try:
                    self._resolve(batch, self._timed(images))
                except Exception as error:
                    self._fail(batch, error)
                self._wake(loop)
                return
            self._running += 1
            try:
                computing = loop.run_in_executor(self.executor, self._timed, images)
            except RuntimeError as error:
                # The system can start no thread for now.
                computing = loop.create_future()
                computing.set_exception(error)
            computing.add_done_callback(partial(self._done, batch))

    def _is_worth_a_core(self) -> bool:
        """Returns whether to start a batch: a short one waits for a running one to end, or for more images."""
        return not self._running or (self._running < self.parallel and self._images * self._seconds > LONG)

    def _take(self) -> list[_Waiting]:
        """Removes the next batch from the queue, without cancelled requests."""
        while self._retried:
            one = self._retried.popleft()
            self._images -= len(one.images)
            if not one.result.done():
                return [one]
        batch: list[_Waiting] = []
        count, most = 0, self.largest
        share = math.ceil(self._images / (self.parallel - self._running))
        if share * self._seconds > LONG:
            # Free cores share the queue evenly.
            most = min(most, share)
        while self._waiting and (not batch or count + len(self._waiting[0].images) <= most):
            one = self._waiting.popleft()
            self._images -= len(one.images)
            self.statistics.waited.add(time.perf_counter() - one.since)
            if not one.result.done():
                batch.append(one)
                count += len(one.images)
        return batch

    def _timed(self, images: np.ndarray) -> Arrays:
        if not len(images):
            # It says nothing about the time of an image.
            return self.run(images)
        start, used = time.perf_counter(), time.thread_time()
        outputs = self.run(images)
        # CPU time: waiting for a core or for the GIL says nothing about the net.
        used = time.thread_time() - used
        seconds = time.perf_counter() - start
        self.measured(len(images), seconds)
        self.statistics.compute(len(images), seconds)
        taken = max(used - self.cost.fixed, 0.0) / len(images)
        mean = self.cost.image if math.isinf(self._seconds) else self._seconds
        self._seconds = taken if math.isinf(mean) else 0.9 * mean + 0.1 * taken
        return outputs

    def _done(self, batch: list[_Waiting], computing: asyncio.Future[Arrays]) -> None:
        self._running -= 1
        error = computing.exception()
        if error is None:
            self._resolve(batch, computing.result())
        else:
            self._fail(batch, error)
        # Later, so that clients that ask again at once join the batch: two alternating groups would never merge.
        self._wake(asyncio.get_running_loop())

    @staticmethod
    def _resolve(batch: list[_Waiting], outputs: Arrays) -> None:
        start = 0
        for one in batch:
            stop = start + len(one.images)
            if not one.result.done():
                one.result.set_result({name: array[start:stop] for name, array in outputs.items()})
            start = stop

    def _fail(self, batch: list[_Waiting], error: BaseException) -> None:
        if len(batch) > 1:
            # Through the queue: on the loop, other work comes between them, and they need less memory than the batch.
            self._retried.extend(batch)
            self._images += sum(len(one.images) for one in batch)
        elif not batch[0].result.done():
            batch[0].result.set_exception(error)
