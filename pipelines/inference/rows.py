"""From encoded pictures to rows of the table, a batch at a time."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from pipelines.inference.inputs import Fetched, printable
from serving import pictures
from serving.errors import PictureError
from serving.manifest import GATE_MEANS, PROBABILITIES
from serving.model import Model, top

# Where a picture's share of a batch is smallest for nets of 10 to 50 layers on one thread; larger ones gain no more.
BATCH = 128
# Large pictures come fewer at a time: they would fill the memory, and a few of them would all be one thread's.
BATCH_BYTES = 2**19


class Seen(NamedTuple):
    """A picture as the net sees it, or why it cannot."""

    name: str
    image: np.ndarray | None
    error: str | None


def batches(fetched: Iterable[Fetched]) -> Iterator[list[Fetched]]:
    """Pictures that one thread decodes and predicts together."""
    batch: list[Fetched] = []
    size = 0
    for picture in fetched:
        batch.append(picture)
        size += _size(picture.content)
        if len(batch) == BATCH or size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def seeing(model: Model) -> Callable[[list[Fetched]], list[Seen]]:
    """A function that decodes pictures and makes what the net sees of them; in any thread."""

    def see(picture: Fetched) -> Seen:
        try:
            return Seen(picture.name, model.see(_decoded(picture)), None)
        except PictureError as error:
            return Seen(picture.name, None, printable(str(error)))

    return lambda batch: [see(picture) for picture in batch]


@dataclass(frozen=True)
class Rows:
    """Makes rows of pictures; in any thread.

    Args:
        model: predicts.
        count: how many classes to name.
        explain: whether to add the mean gate of each layer.
    """

    model: Model
    count: int
    explain: bool

    def schema(self, job: str) -> pa.Schema:
        """The columns; the file's metadata say what the model is, and what made the file.

        Args:
            job: is kept under that name.
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
        described = {
            "model": manifest.name,
            "version": str(manifest.version),
            "labels": "\n".join(manifest.labels),
            "job": job,
        }
        if self.explain:
            columns.append((GATE_MEANS, numbers))
            described["layers"] = "\n".join(manifest.gates or ())
        return pa.schema(columns, metadata=described)

    def __call__(self, seen: Sequence[Seen]) -> list[pa.Array]:
        """The columns of some rows: all but path and error are null where the picture could not be read."""
        images = [picture.image for picture in seen if picture.image is not None]
        readable = np.array([picture.image is not None for picture in seen], bool)
        paths = pa.array([picture.name for picture in seen], pa.string())
        errors = pa.array([picture.error for picture in seen], pa.string())
        # An empty batch is an answer, too: it has the widths of all others.
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


def _size(content: bytes | Path | PictureError) -> int:
    """Bytes of a picture file; 0 if there is none, which is told where it is read."""
    if isinstance(content, bytes):
        return len(content)
    if isinstance(content, Path):
        with suppress(OSError):
            return content.stat().st_size
    return 0


def _decoded(picture: Fetched) -> np.ndarray:
    if isinstance(picture.content, PictureError):
        raise picture.content
    if isinstance(picture.content, Path):
        return pictures.read(picture.content)
    return pictures.decode(picture.content, picture.name)


def _spread(values: Any, readable: np.ndarray) -> pa.Array:
    """Values of the readable rows, and null for the others."""
    return values.take(pa.array(np.cumsum(readable) - 1, mask=~readable))


def _lists(values: Any, width: int, readable: np.ndarray) -> pa.Array:
    """A list of that width for each readable row, and null for the others."""
    ends = np.concatenate([[0], np.cumsum(readable * width)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(ends), values, mask=pa.array(~readable))
