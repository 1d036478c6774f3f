"""Published data sets of TFDS whose images have different sizes."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial

import tensorflow_datasets as tfds

from pipelines.data.own.item import SPLITS, Item, Split
from pipelines.data.parallel import fixed


def items(builder: tfds.core.DatasetBuilder) -> Iterator[Item]:
    """Lists the images of a prepared data set. If it has a training split only, its images belong to no split yet.

    Args:
        builder: its builder.
    """
    names = builder.info.features["label"].int2str
    known = [name for name in builder.info.splits if name in SPLITS]
    for name in known:
        split: Split | None = SPLITS[name] if len(known) > 1 else None
        records = _Records(builder, name)
        for number, label in enumerate(records.labels()):
            yield Item(f"{name} {number}", names(label), partial(records.image, number), split)


@dataclass
class _Records:
    """The encoded images of a split, which are read in order: another order would start from the first again."""

    builder: tfds.core.DatasetBuilder
    split: str
    _next: int = 0
    _images: Iterator[bytes] = field(default_factory=lambda: iter(()))

    def labels(self) -> Iterator[int]:
        """Yields the classes of all images."""
        for example in self._read():
            yield int(example["label"])

    def image(self, number: int) -> bytes:
        """Reads an image."""
        if number < self._next or not self._next:
            self._images, self._next = (bytes(example["image"]) for example in self._read()), 0
        while self._next < number:
            next(self._images)
            self._next += 1
        self._next += 1
        return next(self._images)

    def _read(self) -> Iterator[dict]:
        encoded = {"image": tfds.decode.SkipDecoding()}
        config = tfds.ReadConfig(try_autocache=False, options=fixed())
        dataset = self.builder.as_dataset(split=self.split, shuffle_files=False, read_config=config, decoders=encoded)
        return dataset.as_numpy_iterator()
