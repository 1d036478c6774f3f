"""Examples that stay on disk, because they would not fit into memory when decoded."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from pipelines.data.catalog import damaged
from pipelines.data.order import permuted
from pipelines.data.parallel import CALLS, READY, fixed

CHUNK = 256
# Encoded examples that are shuffled together. TFDS has shuffled the files' contents when it wrote them, so a block is
# a random sample already; what changes from epoch to epoch is the order inside the blocks.
BLOCK = 16_384


@dataclass(frozen=True)
class Stream:
    """The counterpart of `Examples` for large data: the same names, read from disk each time they are asked for."""

    records: tf.data.Dataset
    """Encoded image (scalar string) and label (scalar int64) of each example, in the order of the files."""
    decode: Callable[[tf.Tensor], tf.Tensor]
    """From an encoded image to uint8 [h, w, c]."""
    count: int
    """Number of examples."""
    folder: Path
    """Where the files lie."""

    def __len__(self) -> int:
        return self.count

    @property
    def images(self) -> Iterator[np.ndarray]:
        """Decoded images in order, in batches: uint8 [b, h, w, c]."""
        return self._read(self.decoded(self.records).map(lambda image, _: image))

    @property
    def encoded(self) -> Iterator[np.ndarray]:
        """Images in order as their files have them, in batches: bytes [b]."""
        return self._read(self.records.map(lambda image, _: image))

    @property
    def labels(self) -> np.ndarray:
        """All labels in order, int64 [n]; reads every file."""
        return np.concatenate(list(self._read(self.records.map(lambda _, label: label))))

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The first examples: images, uint8 [count, h, w, c], and labels, int64 [count]; fewer if there are fewer."""
        images, labels = zip(*self._read(self.decoded(self.records.take(count))), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def decoded(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Decodes the images of some records, several at once, in their order."""
        return records.map(lambda image, label: (self.decode(image), label), num_parallel_calls=CALLS)

    def epoch(self, number: tf.Tensor, seed: int) -> tf.data.Dataset:
        """The records in the order of one epoch, a function of seed and number alone.

        Args:
            number: scalar int64, from 0.
            seed: decides the order of all epochs.
        """

        def shuffle(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            count = tf.size(labels, tf.int64)
            order = permuted(tf.range(count), number, count, seed)
            return tf.gather(images, order), tf.gather(labels, order)

        return self.records.batch(BLOCK).map(shuffle).unbatch()

    def _read(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        try:
            yield from dataset.batch(CHUNK).prefetch(READY).with_options(fixed()).as_numpy_iterator()
        except tf.errors.OpError as error:
            raise damaged(self.folder, error) from error
