"""SIGTERM, SIGHUP and Ctrl-C: a training run saves and ends; a process that has started others ends them first."""

import errno
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from typing import IO, Any, cast

from rich.console import Console

from pipelines.core.console import say
from pipelines.core.errors import StoppedError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass
class StopRequest:
    """A request to end training.

    Args:
        by: the first signal; None if none has come yet.
    """

    by: signal.Signals | None = None


@contextmanager
def noted(console: Console) -> Iterator[StopRequest]:
    """Records the first of these signals in the block; a second one ends the process at once.

    Python runs a signal handler only when the framework returns to it, which can take many seconds while a program
    compiles. A thread responds at once, also to a second signal. An ignored signal, as in a background job or under
    nohup, stays ignored. Outside the main thread, which gets all signals, nothing changes.

    Args:
        console: where to report signals.

    Yields:
        The request, to check after each execution.

    Example:
        with noted(console) as stop:
            while not stop.by:
                step()
    """
    stop = StopRequest()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    console.file = cast(IO[str], _Writable(console.file))
    read, write = os.pipe()
    os.set_blocking(write, False)
    handlers = _handlers()
    terminals = [descriptor for descriptor in (1, 2) if os.isatty(descriptor)]
    listener = threading.Thread(target=_listen, args=(read, stop, console, terminals), name="signals", daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(write)
    try:
        for number in handlers:
            # Only signals with a Python handler are written to the descriptor.
            signal.signal(number, lambda *_: None)
        yield stop
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.close(write)
        listener.join()
        os.close(read)


class _Writable:
    """A text file that drops what a closed terminal refuses, in the moment before its SIGHUP is noted."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def write(self, text: str) -> int:
        with _no_terminal():
            self._file.write(text)
        return len(text)

    def flush(self) -> None:
        with _no_terminal():
            self._file.flush()


@contextmanager
def _no_terminal() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno != errno.EIO:
            raise


@contextmanager
def handled(action: Callable[[signal.Signals], None]) -> Iterator[None]:
    """Calls an action for each of these signals in the block, unless it was ignored before.

    Args:
        action: takes the signal.
    """

    def handle(number: int, _: Any) -> None:
        action(signal.Signals(number))

    handlers = _handlers()
    try:
        for number in handlers:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def raised() -> AbstractContextManager[None]:
    """Turns signals in the block into errors, so that a process can end the ones that it started.

    Raises:
        StoppedError: one of the signals came.
    """

    def stop(number: signal.Signals) -> None:
        raise StoppedError("stopped; repeat the command to continue", number)

    return handled(stop)


def _handlers() -> dict[signal.Signals, Any]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    return {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}


def _listen(descriptor: int, stop: StopRequest, console: Console, terminals: list[int]) -> None:
    while number := os.read(descriptor, 1):
        if number[0] not in SIGNALS:
            continue
        received, again = signal.Signals(number[0]), stop.by is not None
        if received == signal.SIGHUP:
            # The terminal is closed: from here on, writing to it would be an error that prevents saving.
            nowhere = os.open(os.devnull, os.O_WRONLY)
            for terminal in terminals:
                os.dup2(nowhere, terminal)
            os.close(nowhere)
        stop.by = stop.by or received
        end = "ends at once" if again else "finishes the step and saves; a second signal ends at once"
        # The terminal may be closed.
        with suppress(OSError):
            say(console, f"{received.name}: {end}")
            if again:
                console.show_cursor()
        if again:
            os._exit(128 + received)
