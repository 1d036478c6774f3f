"""When a worker process starts to accept connections: once it can answer them.

Workers share a port, so a client's next connection may go to a worker that has just been started. While it loads its
models, the others can answer. Only if none of them can does one worker accept connections before that, for liveness
and for the models it has loaded so far.
"""

import asyncio
import mmap
import threading

# Seconds between two looks at what others do.
TICK = 0.05

HEALTH_ONLY = 128
"""Connections beyond the limits, which only answer questions about health: whatever asks them, and restarts an endpoint
without an answer, must not depend on what other clients do."""
AT_ONCE = HEALTH_ONLY * 3 // 4
"""Further connections, which are accepted together once all others are taken, before those that they replace are
closed. Fewer than those for health: the requests of these are read before further ones replace them."""


class Readiness:
    """State of the workers of one supervisor: which of them can answer.

    Args:
        workers: number of workers.

    Example:
        readiness = Readiness(2)
        readiness.enter(1)
        readiness.update(loading=False)
    """

    def __init__(self, workers: int = 1) -> None:
        # Forked workers share this memory: 1 for each that has loaded its models, and if the first accepts connections
        # before that.
        self._loaded, self._early = mmap.mmap(-1, workers), mmap.mmap(-1, 1)
        self._worker = 0

    def enter(self, worker: int) -> None:
        """Makes this process one of the workers.

        Args:
            worker: its number, from 0, which is the one that accepts connections if none can answer.
        """
        self._worker = worker

    def leave(self, worker: int) -> None:
        """Records the end of a worker; called by the supervisor."""
        self._loaded[worker] = 0
        if worker == 0:
            self._early[0] = 0

    def update(self, loading: bool) -> None:
        """Records whether this process is still loading its models."""
        self._loaded[self._worker] = not loading

    async def wait(self, stopping: threading.Event) -> None:
        """Returns once this process should accept connections.

        Args:
            stopping: set if it should stop instead.
        """
        while not self._accepts() and not stopping.is_set():
            await asyncio.sleep(TICK)

    def _accepts(self) -> bool:
        if self._loaded[self._worker]:
            # While the first one still refuses some, another would make the endpoint look ready.
            return bool(self._loaded[0]) or not self._early[0]
        if self._worker != 0:
            return False
        # Before the look at the others: one that has just loaded its models either is seen here or sees this.
        self._early[0] = 1
        if not any(self._loaded[:]):
            return True
        self._early[0] = 0
        return False
