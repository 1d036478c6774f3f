"""Work that would stop the event loop is done in processes of their own.

A JSON parser holds Python's lock from the first byte to the last, so that a thread is of no use: 30 MB of nested lists
took 12 s, in which nobody was answered.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TypeVar

from serving.child import Children, EndedError
from serving.errors import BusyError

T = TypeVar("T")
# Bytes of JSON, or numbers in an answer, that the event loop reads and writes itself, in two or three milliseconds.
SMALL = 2**15


class Offload:
    """Runs functions in other processes; there are none until the first.

    Args:
        processes: how many there may be.

    Example:
        offload = Offload(1)
        parsed = await offload.run(orjson.loads, body)
        offload.close()
    """

    def __init__(self, processes: int) -> None:
        # Each waits for one process.
        self._threads = ThreadPoolExecutor(processes, thread_name_prefix="offload")
        self._children = Children()

    async def run(self, function: Callable[..., T], *arguments: object) -> T:
        """Calls a function.

        Args:
            function: of a module, without side effects.
            arguments: see `serving.child.Children.call`.

        Returns:
            What it returns.

        Raises:
            BusyError: the process was killed, twice.
        """
        return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, function, *arguments)

    def close(self) -> None:
        """Ends the processes; nobody waits for what they are doing."""
        self._children.close()
        self._threads.shutdown(cancel_futures=True)

    def _run(self, function: Callable[..., T], *arguments: object) -> T:
        # The system may have killed a process for its memory, or somebody else for no reason.
        for _ in range(2):
            with suppress(EndedError):
                return self._children.call(function, *arguments)
        raise BusyError("what reads large requests and writes large answers was ended.", after=1.0)
