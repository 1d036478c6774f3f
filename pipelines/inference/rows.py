"""Decoding and prediction of image batches, and their rows in the table."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.inference.inputs import Fetched, printable
from serving import image_files
from serving.errors import ImageError
from serving.manifest import GATE_MEANS, PROBABILITIES
from serving.model import Model, top

# With nets of 10 to 50 layers on one thread, larger batches are no faster per image.
BATCH = 128
# Large images are put into smaller batches, which bounds memory and spreads them over the threads.
BATCH_BYTES = 2**19


class NetInput(NamedTuple):
    """An image converted to the net's input, or the reason why the conversion failed."""

    name: str
    image: np.ndarray | None
    error: str | None


def batches(fetched: Iterable[Fetched]) -> Iterator[list[Fetched]]:
    """Groups images into batches, each of which one thread decodes and predicts."""
    batch: list[Fetched] = []
    size = 0
    for image in fetched:
        batch.append(image)
        size += _size(image.content)
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def converter(model: Model) -> Callable[[list[Fetched]], list[NetInput]]:
    """Returns a thread-safe function that decodes images and converts them to the net's inputs."""

    def convert(image: Fetched) -> NetInput:
        try:
            return NetInput(image.name, model.to_input(_decoded(image, model.side)), None)
        except ImageError as error:
            return NetInput(image.name, None, printable(str(error)))

    return lambda batch: [convert(image) for image in batch]


@dataclass(frozen=True)
class RowBuilder:
    """Predicts images and builds their rows; thread-safe.

    Args:
        model: the model.
        count: number of classes per row.
        explain: whether to add the mean gate of each layer.
    """

    model: Model
    count: int
    explain: bool

    def schema(self, job: str) -> pa.Schema:
        """Returns the columns, with metadata about the model and the job.

        Args:
            job: description of the job as JSON.
        """
        numbers, manifest = pa.list_(pa.float32()), self.model.manifest
        columns = [
            ("path", pa.string()),
            ("error", pa.string()),
            ("label", pa.string()),
            ("probability", pa.float32()),
            ("top", pa.list_(pa.struct([("label", pa.string()), ("probability", pa.float32())]))),
            (PROBABILITIES, numbers),
        ]
        metadata = {
            "model": manifest.name,
            "version": str(manifest.version),
            "labels": "\n".join(manifest.labels),
            "job": job,
        }
        if self.explain:
            columns.append((GATE_MEANS, numbers))
            metadata["layers"] = "\n".join(manifest.gates or ())
        return pa.schema(columns, metadata=metadata)

    def __call__(self, inputs: Sequence[NetInput]) -> list[pa.Array]:
        """Returns the columns of a batch; all but path and error are null for unreadable images."""
        images = [row.image for row in inputs if row.image is not None]
        readable = np.array([row.image is not None for row in inputs], bool)
        paths = pa.array([row.name for row in inputs], pa.string())
        errors = pa.array([row.error for row in inputs], pa.string())
        # An empty batch is predicted too, because the widths of its outputs are needed.
        shape = (len(images), *self.model.manifest.input.shape[1:])
        outputs = self.model.predict(np.stack(images) if images else np.empty(shape, np.uint8))
        probabilities = outputs[PROBABILITIES]
        classes = top(probabilities, self.count)
        labels = pa.array(self.model.manifest.labels).take(pa.array(classes.ravel()))
        best = np.take_along_axis(probabilities, classes, axis=-1)
        named = pa.StructArray.from_arrays([labels, pa.array(best.ravel())], names=["label", "probability"])
        columns = [
            paths,
            errors,
            _spread(labels.take(pa.array(np.arange(len(images)) * classes.shape[1])), readable),
            _spread(pa.array(best[:, 0]), readable),
            _lists(named, classes.shape[1], readable),
            _lists(pa.array(probabilities.ravel()), probabilities.shape[1], readable),
        ]
        if self.explain:
            gates = outputs[GATE_MEANS]
            columns.append(_lists(pa.array(gates.ravel()), gates.shape[1], readable))
        return columns


def _size(content: bytes | Path | ImageError) -> int:
    """Size of an encoded image in bytes; 0 if the image is missing, which is reported when it is read."""
    if isinstance(content, bytes):
        return len(content)
    if isinstance(content, Path):
        with suppress(OSError):
            return content.stat().st_size
    return 0


def _decoded(image: Fetched, side: int) -> np.ndarray:
    if isinstance(image.content, ImageError):
        raise image.content
    if isinstance(image.content, Path):
        return image_files.read(image.content, side)
    return image_files.decode(image.content, image.name, side=side)


def _spread(values: Any, readable: np.ndarray) -> pa.Array:
    """Spreads values over the readable rows, with null for the others."""
    return values.take(pa.array(np.cumsum(readable) - 1, mask=~readable))


def _lists(values: Any, width: int, readable: np.ndarray) -> pa.Array:
    """Spreads lists of equal width over the readable rows, with null for the others."""
    ends = np.concatenate([[0], np.cumsum(readable * width)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array(~readable))
