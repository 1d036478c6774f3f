"""What ends a worker that hangs inside a framework, where no thread of Python need ever run again: an alarm."""

import faulthandler
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LIMIT = 30 * 60.0
"""Seconds in which an execution of training or validation ends: to compile a deep net takes many minutes."""


@contextmanager
def watchdog(limit: float = LIMIT) -> Iterator[Callable[[], None]]:
    """In the block SIGALRM ends the process, unless it is put off again and again.

    Where every thread was is written to stderr before.

    Args:
        limit: seconds.

    Yields:
        What puts it off; to be called in the main thread.

    Example:
        with watchdog() as heartbeat:
            for batch in batches:
                step(batch)
                heartbeat()
    """

    def heartbeat() -> None:
        signal.setitimer(signal.ITIMER_REAL, limit)

    faulthandler.register(signal.SIGALRM, all_threads=True, chain=True)
    heartbeat()
    try:
        yield heartbeat
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.unregister(signal.SIGALRM)
