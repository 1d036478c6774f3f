"""SIGTERM and Ctrl-C: the first asks a training to end, the second ends it."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from rich.console import Console

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass
class Stop:
    """Whether the training is asked to end.

    Args:
        by: the signal that asked first; None so far.
    """

    by: signal.Signals | None = None


@contextmanager
def on_signals(console: Console) -> Iterator[Stop]:
    """In the block a first SIGINT or SIGTERM is only taken note of; a second one ends the process at once.

    Python would run a handler when the framework comes back to it, which can be many seconds away while a program is
    compiled. So a thread is told: it answers at once, and a second signal does not wait either. A signal that is
    ignored, as in a job in the background, stays ignored. Outside of the main thread nothing is changed, because
    signals do not come there.

    Args:
        console: where to say what happens.

    Yields:
        What to look at after each execution.

    Example:
        with on_signals(console) as stop:
            while not stop.by:
                step()
    """
    stop = Stop()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    read, write = os.pipe()
    os.set_blocking(write, False)
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    taken = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}
    listener = threading.Thread(target=_listen, args=(read, stop, console), name="signals", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(write)
    try:
        for number in taken:
            # Only a signal that has a handler in Python is written to the descriptor.
            signal.signal(number, lambda *_: None)
        yield stop
    finally:
        for number, handler in taken.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(write)
        listener.join()
        os.close(read)


def _listen(descriptor: int, stop: Stop, console: Console) -> None:
    while number := os.read(descriptor, 1):
        if number[0] not in SIGNALS:
            continue
        told, again = signal.Signals(number[0]), stop.by is not None
        stop.by = stop.by or told
        end = "ends at once" if again else "finishes the step and saves; once more ends at once"
        # Whoever closed the terminal is not to be told.
        with suppress(OSError):
            console.print(f"{told.name}: {end}", highlight=False, soft_wrap=True)
            if again:
                console.show_cursor()
        if again:
            os._exit(128 + told)
