"""Examples that are streamed from disk, because they would not fit into memory once decoded."""

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
# Number of encoded examples shuffled together. TFDS shuffled the files when it wrote them, so that a block is already a
# random sample; only the order within blocks changes between epochs.
BLOCK = 16_384


@dataclass(frozen=True)
class Stream:
    """The counterpart of `Examples` for large data, which reads from disk on every access."""

    records: tf.data.Dataset
    """Encoded image (scalar string) and label (scalar int64, or uint8 [classes]) of each example, in file order."""
    decode: Callable[[tf.Tensor], tf.Tensor]
    """Function from an encoded image to uint8 [h, w, c]."""
    count: int
    """Number of examples."""
    folder: Path
    """Folder of the files."""

    def __len__(self) -> int:
        return self.count

    @property
    def images(self) -> Iterator[np.ndarray]:
        """Decoded images in order, in batches: uint8 [b, h, w, c]."""
        return self._read(self.decoded(self.records).map(lambda image, _: image))

    @property
    def encoded(self) -> Iterator[np.ndarray]:
        """Encoded images in order, in batches: bytes [b]."""
        return self._read(self.records.map(lambda image, _: image))

    @property
    def labels(self) -> np.ndarray:
        """All labels in order, int64 [n] or uint8 [n, classes]; reads every file."""
        return np.concatenate(list(self._read(self.records.map(lambda _, label: label))))

    def first(self, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Reads up to `count` examples from the start: images, uint8 [count, h, w, c], and labels, int64 [count]."""
        images, labels = zip(*self._read(self.decoded(self.records.take(count))), strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def decoded(self, records: tf.data.Dataset) -> tf.data.Dataset:
        """Decodes the images of records in parallel, preserving their order."""
        return records.map(lambda image, label: (self.decode(image), label), num_parallel_calls=CALLS)

    def epoch(self, number: tf.Tensor, seed: int) -> tf.data.Dataset:
        """Returns the records in the order of an epoch, which depends only on the seed and the epoch's number.

        Args:
            number: scalar int64, from 0.
            seed: seed of the order of all epochs.
        """

        def shuffle(images: tf.Tensor, labels: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            count = tf.shape(labels, tf.int64)[0]
            order = permuted(tf.range(count), number, count, seed)
            return tf.gather(images, order), tf.gather(labels, order)

        return self.records.batch(BLOCK).map(shuffle).unbatch()

    def _read(self, dataset: tf.data.Dataset) -> Iterator[Any]:
        try:
            yield from dataset.batch(CHUNK).prefetch(READY).with_options(fixed()).as_numpy_iterator()
        except tf.errors.OpError as error:
            raise damaged(self.folder, error) from error
