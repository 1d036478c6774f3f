"""What a version must agree with before it serves: its folder, its labels, its graphs, and what Keras gave for it.

A manifest is compared with itself where it is read (`serving.manifest`), and with its files by their digests
(`serving.files`). What is here finds versions that are whole, and would answer wrongly or not at all.
"""

import io
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from serving.errors import ModelError
from serving.manifest import INPUT, PROBABILITIES, RGBA, Manifest

# Pictures that a version must answer as the Keras model did, and how far it may be off: a GPU may multiply with the
# ten bits of TF32; another model is further away.
COMPARED, TOLERANCE = 4, 0.01
# What ONNX Runtime calls the types.
_UINT8, _FLOAT = "tensor(uint8)", "tensor(float)"


class Samples(NamedTuple):
    """A few pictures, and what the Keras model gave for them."""

    images: np.ndarray
    """uint8 `[n, height, width, channels]`."""
    probabilities: np.ndarray
    """float32 `[n, classes]`."""


def place(folder: Path, content: Manifest) -> None:
    """Compares a manifest with the folder that it lies in: its model's name and its own number.

    Args:
        folder: the version, in a repository.
        content: its manifest.

    Raises:
        ModelError: it is the manifest of another version.
    """
    if (content.name, str(content.version)) != (folder.parent.name, folder.name):
        raise ModelError(
            f"{folder} holds version {content.version} of model {content.name!r} by its manifest. A version is served "
            "under the name and number that it was exported with: move it there, or export it again with --to."
        )


def labels(text: bytes, content: Manifest, path: Path) -> None:
    """Compares a manifest with the file of labels.

    Raises:
        ModelError: they differ.
    """
    if text.decode(errors="replace") != "".join(f"{label}\n" for label in content.labels):
        raise ModelError(
            f"{path} does not have the {len(content.labels)} labels of the manifest, one a line. Export it again."
        )


def graph(session: Any, content: Manifest, path: Path) -> None:
    """Compares a manifest with the graph that computes predictions.

    Args:
        session: of the graph, in ONNX Runtime.
        content: the manifest.
        path: of the graph, for the message.

    Raises:
        ModelError: an input or output is missing, or has another type or shape.
    """
    _tensors(path, session.get_inputs(), {INPUT: (_UINT8, content.input.shape)}, every=True)
    computed = {name: (_FLOAT, content.outputs[name].shape) for name in content.computed}
    _tensors(path, session.get_outputs(), computed, every=False)


def picture_graph(session: Any, content: Manifest, path: Path) -> None:
    """Compares a manifest with the graph that makes an input of a picture; see `graph`."""
    _tensors(path, session.get_inputs(), {RGBA: (_UINT8, (None, None, 4))}, every=True)
    _tensors(path, session.get_outputs(), {INPUT: (_UINT8, content.input.shape[1:])}, every=False)


def samples(file: bytes, content: Manifest, path: Path) -> Samples:
    """Reads the first pictures that a version was compared with when it was exported.

    Raises:
        ModelError: they are not what the version takes and gives.
    """
    try:
        with np.load(io.BytesIO(file), allow_pickle=False) as kept:
            found = Samples(kept["images"][:COMPARED].copy(), kept[PROBABILITIES][:COMPARED].copy())
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise ModelError(f"{path} is damaged: {error}. Export the model again.") from error
    shapes = (found.images.shape[1:], found.probabilities.shape[1:], len(found.images))
    if shapes != (content.input.shape[1:], (len(content.labels),), len(found.probabilities)):
        raise ModelError(f"{path} holds pictures or answers of another shape than the manifest's. Export it again.")
    return found


def trial(model: Any) -> None:
    """Predicts with a version as its users will; the first call allocates, and nobody shall wait for that.

    Args:
        model: a `serving.model.Model`.

    Raises:
        ModelError: it gives outputs of another shape than it says, what is no number, or something else than the Keras
            model that it was made from; or it makes something else than its input of a picture.
    """
    content, kept = model.manifest, model.samples
    where = f"version {content.version} of model {content.name!r}"
    size = content.input.shape[1:]
    images = kept.images if kept else np.zeros((1, *size), np.uint8)
    found = model.predict(images)
    for name, value in found.items():
        shape = (len(images), *content.outputs[name].shape[1:])
        if value.shape != shape or value.dtype != np.float32:
            raise ModelError(f"{where} gives {name} of {value.dtype} {value.shape}, its manifest says float32 {shape}.")
        if not np.isfinite(value).all():
            raise ModelError(f"{where} gives {name} that are no numbers (NaN or infinite). Train and export it again.")
    if kept and not np.allclose(found[PROBABILITIES], kept.probabilities, rtol=0, atol=TOLERANCE):
        raise ModelError(
            f"{where} computes something else than the Keras model that it was made from. Export it again."
        )
    if model.picture is not None and (seen := model.see(_stroke())).shape != size:
        raise ModelError(f"{where} makes {seen.shape} of a picture, and takes {size}. Export it again.")


def _stroke() -> np.ndarray:
    drawn = np.full((32, 32, 4), 255, np.uint8)
    drawn[8:24, 14:18, :3] = 0
    return drawn


def _tensors(
    path: Path, found: list[Any], expected: dict[str, tuple[str, tuple[int | None, ...]]], every: bool
) -> None:
    """Compares tensors of a graph; a size that the graph leaves open fits every size, the batch must be left open."""
    there = {one.name: one for one in found}
    if missing := expected.keys() - there.keys():
        raise ModelError(f"{path} has no {' and '.join(sorted(missing))}, which the manifest names. Export it again.")
    if every and (others := there.keys() - expected.keys()):
        raise ModelError(f"{path} takes {' and '.join(sorted(others))} too, which the manifest does not name.")
    for name, (kind, shape) in expected.items():
        # An open size has a name, or none.
        sizes = [size if isinstance(size, int) else None for size in there[name].shape]
        fits = len(sizes) == len(shape) and all(
            one is None or one == other for one, other in zip(sizes, shape, strict=False)
        )
        if there[name].type != kind or not fits:
            raise ModelError(
                f"{path} has {name} as {there[name].type} {sizes}, the manifest says {kind} {list(shape)}. "
                "Export it again."
            )
