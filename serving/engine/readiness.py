"""When a worker process starts to accept connections: once it can answer them.

Workers share a port, so a client's next connection may go to a worker that has just been started. While it loads its
models, the others can answer. Only if there are none yet does one worker accept connections before that, for liveness
and for the models it has loaded so far.
"""

import asyncio
import mmap
import threading

# Seconds between two looks at what others do.
TICK = 0.05


class Readiness:
    """State of the workers of one supervisor: whether the first of them can answer.

    Example:
        readiness = Readiness()
        readiness.enter(1)
        readiness.update(loading=False)
    """

    def __init__(self) -> None:
        # Forked workers share this memory: 1 once the first of them has loaded its models.
        self._first_loaded = mmap.mmap(-1, 1)
        self._first = self._loading = True

    def enter(self, worker: int) -> None:
        """Makes this process one of the workers.

        Args:
            worker: its number, from 0, which is the one that accepts connections before any models are loaded.
        """
        self._first = worker == 0

    def update(self, loading: bool) -> None:
        """Records whether this process is still loading its models."""
        self._loading = loading
        if self._first and not loading:
            self._first_loaded[0] = 1

    async def wait(self, stopping: threading.Event) -> None:
        """Returns once this process should accept connections.

        Args:
            stopping: set if it should stop instead.
        """
        if self._first and not self._first_loaded[0]:
            return
        # While the first one still refuses some, another would make the endpoint look ready.
        while (self._loading or not self._first_loaded[0]) and not stopping.is_set():
            await asyncio.sleep(TICK)
