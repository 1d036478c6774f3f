"""Pictures of a TFDS data set, still encoded."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.inference.picture import TFDS, Picture

if TYPE_CHECKING:
    from pipelines.data.stream import Stream

SPLITS: tuple[Literal["train", "validation", "test"], ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """The pictures of a split, numbered from 0.

    Args:
        word: data set and split.
        stream: the examples.
    """

    word: str
    stream: "Stream"

    def __iter__(self) -> Iterator[Picture]:
        number = 0
        for batch in self.stream.encoded:
            for content in batch:
                yield Picture(f"{TFDS}{self.word}:{number}", partial(bytes, content))
                number += 1

    def count(self) -> int:
        """How many pictures there are."""
        return len(self.stream)


def split(word: str, data_dir: Path | None) -> Split:
    """Opens a split; the data set is prepared first if need be. Imports TensorFlow.

    Args:
        word: data set and split, as "mnist/test".
        data_dir: where prepared data lies.

    Raises:
        UserError: there is no such data set or split, or it has no pictures.

    Example:
        for picture in split("mnist/test", None):
            print(picture.name)  # "tfds:mnist/test:0"
    """
    data, _, name = word.rpartition("/")
    chosen = next((known for known in SPLITS if known == name), None)
    if chosen is None or not data:
        raise UserError(f"{TFDS}{word} names no split. Expected one of {', '.join(SPLITS)}, as in {TFDS}mnist/test.")
    frameworks.load()
    from pipelines.data import sources
    from pipelines.data.stream import Stream

    info = sources.describe(data, data_dir)
    if not info.labels:
        raise UserError(f"the data set '{data}' has no pictures.")
    if not info.counts[chosen]:
        have = ", ".join(known for known in SPLITS if info.counts[known])
        raise UserError(f"the data set '{data}' has no {chosen} examples. It has: {have}.")
    stream = sources.load(data, chosen, data_dir, memory=0)
    assert isinstance(stream, Stream), "pictures that have no memory to be in are streamed"
    return Split(word, stream)
