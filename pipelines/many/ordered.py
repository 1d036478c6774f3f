"""Work in several threads, with its results in order and no more of it in memory than keeps the threads busy."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def ordered(pool: Executor, work: Callable[[Item], Result], items: Iterable[Item], ahead: int) -> Iterator[Result]:
    """Maps in parallel, and takes items only as results are asked for.

    Args:
        pool: does the work.
        work: what to do with each item.
        items: taken in the caller's thread.
        ahead: how many are worked on or wait at most.

    Yields:
        The results, in the order of the items.

    Example:
        with ThreadPoolExecutor(2) as pool:
            sizes = list(ordered(pool, os.path.getsize, paths, 4))
    """
    waiting: deque[Future[Result]] = deque()
    for item in items:
        waiting.append(pool.submit(work, item))
        if len(waiting) == ahead:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()
