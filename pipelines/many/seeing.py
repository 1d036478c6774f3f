"""Decodes pictures in several threads, in their order, with no more of them in memory than are needed."""

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple

import numpy as np

from pipelines.many.inputs import Picture
from serving.errors import PictureError
from serving.model import Model

# Pictures that a thread takes at a time, and how many such chunks wait for each thread.
CHUNK, AHEAD = 16, 3


class Seen(NamedTuple):
    """A picture as the net sees it, or why it cannot."""

    name: str
    image: np.ndarray | None
    error: str | None


def seen(model: Model, given: Iterable[Picture], threads: int) -> Iterator[Seen]:
    """Decodes pictures and makes inputs of them.

    Args:
        model: what they are for.
        given: the pictures.
        threads: how many to decode with.

    Yields:
        One for each picture, in their order; one that cannot be read has its error.
    """

    def work(chunk: list[Picture]) -> list[Seen]:
        return [_one(model, picture) for picture in chunk]

    rest = iter(given)
    waiting: deque[Future[list[Seen]]] = deque()
    with ThreadPoolExecutor(threads, thread_name_prefix="decode") as pool:
        try:
            while True:
                while len(waiting) < AHEAD * threads and (chunk := list(islice(rest, CHUNK))):
                    waiting.append(pool.submit(work, chunk))
                if not waiting:
                    return
                yield from waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _one(model: Model, picture: Picture) -> Seen:
    try:
        return Seen(picture.name, model.see(picture.decode()), None)
    except PictureError as error:
        return Seen(picture.name, None, str(error))
