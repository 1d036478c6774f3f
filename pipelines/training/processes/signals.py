"""SIGTERM and Ctrl-C in a process that has started others."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipelines.core.errors import StoppedError
from pipelines.training.stopping import SIGNALS


@contextmanager
def raised() -> Iterator[None]:
    """In the block a signal to end is raised, so that whoever started processes ends them first.

    Raises:
        StoppedError: when SIGTERM or SIGINT comes.
    """

    def stop(number: int, _: Any) -> None:
        raise StoppedError("stopped; repeat the command to go on", signal.Signals(number))

    # What is ignored, as Ctrl-C in the background, stays ignored.
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    taken = {number: handler for number, handler in handlers.items() if handler != signal.SIG_IGN}
    try:
        for number in taken:
            signal.signal(number, stop)
        yield
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
