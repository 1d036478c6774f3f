"""Work in several threads, with its results in order and no more of it in memory than keeps the threads busy."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from threading import Lock
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered(pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Maps in parallel. A thread that is free takes its next item itself, so that no further thread, which makes items,
    contends with these for Python's lock.

    Args:
        pool: does the work.
        work: what to do with each item.
        items: are taken by the threads of the pool, one at a time.
        ahead: how many are worked on or wait at most.

    Yields:
        The results, in the order of the items.

    Example:
        with ThreadPoolExecutor(2) as pool:
            sizes = list(ordered(pool, os.path.getsize, paths, 4))
    """
    queue = _Queue(work, items)
    running = deque(pool.submit(queue.next) for _ in range(ahead))
    waiting: dict[int, Result] = {}
    wanted = 0
    while running:
        done = running.popleft().result()
        if not done:
            continue
        number, waiting[number] = done
        while wanted in waiting:
            yield waiting.pop(wanted)
            wanted += 1
            running.append(pool.submit(queue.next))


class _Queue(Generic[Item, Result]):
    """Items that are numbered as they are taken."""

    def __init__(self, work: Callable[[Item], Result], items: Iterable[Item]) -> None:
        self._work = work
        self._items = enumerate(items)
        self._taking = Lock()

    def next(self) -> tuple[int, Result] | None:
        """Works on the next item; None if there is none."""
        with self._taking:
            found = next(self._items, None)
        return found and (found[0], self._work(found[1]))
