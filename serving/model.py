"""Opened model versions."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from serving import checks, files, image_files, reference, repository
from serving.errors import ImageError, OutputError
from serving.inputs import INPUT
from serving.manifest import (
    BOXES,
    CROP,
    GATE_MAPS,
    LABELS,
    ONNX,
    PICTURE,
    REFERENCE,
    RGBA,
    SIDE,
    WEIGHTS,
    Manifest,
    read,
)
from serving.reference import Samples
from serving.session import fault, has_loop, open_session, open_shared

# Inputs of a part of a batch, and the seconds for one beyond which larger parts save no time.
PART, SLOW = 16, 1e-3
# Margin around a digit that is cut out, relative to its longest side.
MARGIN = 0.4


class Seen(NamedTuple):
    """Inputs of a net, converted from an image of any size."""

    images: np.ndarray
    """Inputs of the net, uint8 `[n, height, width, channels]`: the whole image, and then each of its digits if they are
    several and were asked for."""
    boxes: np.ndarray | None
    """Top, bottom, left and right of each digit, from left to right, float32 `[digits, 4]` from 0 to 1; None for other
    kinds of image, and for versions that were exported before digits were counted."""
    crop: np.ndarray | None = None
    """Top, bottom, left and right of the part of a natural image that becomes the input, float32 `[4]` from 0 to 1;
    None for other kinds of image, and for versions that were exported before frames were left out."""


@dataclass(frozen=True)
class Version:
    """A checked model version, which converts image files to its input; predictions may be computed elsewhere.

    Args:
        folder: the version.
        manifest: its manifest.
        conversion: session of `picture.onnx`; None in versions that were exported without it.
        samples: reference images or rows; None in versions that were exported without them.
        side: length of the shorter side down to which image files are scaled while they are decoded; see
            `serving.image_files.reduction`.
    """

    folder: Path
    manifest: Manifest
    conversion: Any
    samples: Samples | None
    side: int

    @property
    def counts_digits(self) -> bool:
        """True if `see` finds the digits in an image."""
        return self.conversion is not None and any(one.name == BOXES for one in self.conversion.get_outputs())

    def to_input(self, rgba: np.ndarray) -> np.ndarray:
        """Converts an image of any size to the input of the net.

        Args:
            rgba: uint8 `[height, width, 4]`, from `serving.image_files`.

        Returns:
            uint8 `[height, width, channels]`, with the sizes of the manifest.

        Raises:
            ImageError: the version was exported without `picture.onnx`.
            OutputError: it fails on this image, or converts it to something else.

        Example:
            image = model.to_input(image_files.read(Path("seven.jpg"), model.side))
        """
        return self._converted([INPUT], image_files.shrunk(rgba, self.side))[0]

    def see(self, rgba: np.ndarray, segments: bool = False) -> Seen:
        """Converts an image of any size to inputs of the net, and finds the digits or the photograph in it.

        Args:
            rgba: uint8 `[height, width, 4]`, from `serving.image_files`.
            segments: whether to convert each of several digits too.

        Returns:
            The inputs, with the digits or the crop.

        Raises:
            ImageError: the version was exported without `picture.onnx`.
            OutputError: it fails on this image, or computes what cannot be inputs, digits or a crop.

        Example:
            images, boxes, _ = model.see(image_files.read(Path("seven.jpg")), segments=True)
        """
        small = image_files.shrunk(rgba, self.side)
        given = {output.name for output in self.conversion.get_outputs()} if self.conversion else set()
        if CROP in given:
            image, crop = self._converted([INPUT, CROP], small)
            return Seen(image[None], None, crop)
        if BOXES not in given:
            return Seen(self.to_input(small)[None], None)
        image, boxes = self._converted([INPUT, BOXES], small)
        parts = _cut(small, boxes) if segments and len(boxes) > 1 else []
        return Seen(np.stack([image, *(self._converted([INPUT], part)[0] for part in parts)]), boxes)

    def _converted(self, names: list[str], rgba: np.ndarray) -> list[np.ndarray]:
        if self.manifest.is_table:
            raise ImageError(f"model {self.manifest.name!r} takes rows of a table, not images. Send rows.")
        if self.conversion is None:
            raise ImageError(
                f"version {self.manifest.version} of model {self.manifest.name!r} takes no image files, as it has no "
                f"{PICTURE}. Export the run again, or send pixels."
            )
        found = _run(self.conversion, names, {RGBA: rgba}, self.manifest)
        checks.converted(found, self.manifest)
        return [*found.values()]


@dataclass(frozen=True)
class Model(Version):
    """A model version that ONNX Runtime predicts with.

    Args:
        session: session of `model.onnx`.
    """

    session: Any

    def predict(self, inputs: np.ndarray) -> dict[str, np.ndarray]:
        """Predicts a batch.

        Args:
            inputs: uint8 `[batch, height, width, channels]` or, for tables, float32 `[batch, columns]` as
                `serving.rows.encode` makes them, with the sizes of the manifest; any batch size.

        Returns:
            `probabilities`, float32 `[batch, classes]`, or `value`, float32 `[batch, 1]`; and `gate_means`, float32
            `[batch, layers]`, if the manifest names layers.

        Raises:
            ValueError: the inputs have another type or size.
            OutputError: it fails on these inputs, or its outputs have other sizes than in the manifest.

        Example:
            open_model(Path("models/demo")).predict(images)["probabilities"]
        """
        return self._run(inputs, self.manifest.computed)

    def predict_maps(self, images: np.ndarray) -> dict[str, np.ndarray]:
        """Computes where in each image the gates of convolutional layers open.

        Args:
            images: see `predict`.

        Returns:
            `gate_maps`, float32 `[batch, positions]`, the maps of `manifest.maps` one after the other.

        Raises:
            ValueError: the images have another type or size.
            OutputError: see `predict`.

        Example:
            open_model(Path("models/demo")).predict_maps(images)["gate_maps"]
        """
        return self._run(images, (GATE_MAPS,))

    def _run(self, inputs: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
        wanted = self.manifest.input
        if inputs.dtype != wanted.dtype or inputs.shape[1:] != wanted.shape[1:]:
            unit = self.manifest.unit
            raise ValueError(
                f"{unit}s must be {wanted.dtype} of shape (batch, {', '.join(map(str, wanted.shape[1:]))}). "
                f"Received: {unit}s of {inputs.dtype} and shape {inputs.shape}"
            )
        return self._in_parts(inputs, names)

    def _in_parts(self, inputs: np.ndarray, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Runs the graph on a few inputs at a time if these take long, as with convolutional nets.

        Their maps then stay in the processor's caches, and ONNX Runtime keeps memory for those of a few inputs only.
        """

        def run(part: np.ndarray) -> dict[str, np.ndarray]:
            found = _run(self.session, names, {self.manifest.input.name: part}, self.manifest)
            checks.sizes(found, len(part), self.manifest)
            return found

        start = time.perf_counter()
        parts = [run(inputs[:PART])]
        if len(inputs) <= PART:
            return parts[0]
        size = PART if time.perf_counter() - start > SLOW else len(inputs)
        parts += [run(inputs[first : first + size]) for first in range(PART, len(inputs), size)]
        return {name: np.concatenate([part[name] for part in parts]) for name in names}


def open_model(path: Path, threads: int = 1, trusted: Sequence[bytes] = ()) -> Model:
    """Opens a model version after checking its manifest against all its files, its labels and its graphs.

    Args:
        path: a version folder, or the folder of a model, for its newest version.
        threads: threads of one prediction.
        trusted: public keys, one of which must have signed the version; without any, it may be unsigned.

    Returns:
        The model.

    Raises:
        ModelError: there is no model, a file of it is missing or damaged, files contradict each other, or it is not
            signed as required.

    Example:
        model = open_model(Path("models/demo"))
        print(model.manifest.labels)
    """
    return open_version(repository.find(path), threads, trusted)


def open_version(folder: Path, threads: int = 1, trusted: Sequence[bytes] = ()) -> Model:
    """Opens the model version in a folder; see `open_model`."""
    version, found = _open(folder, read(folder, trusted), closed=bool(trusted))
    arena = not has_loop(found[ONNX])
    session = open_session(folder / ONNX, threads, content=found[ONNX], weights=found.get(WEIGHTS), arena=arena)
    checks.graph(session, version.manifest, folder / ONNX)
    return Model(**vars(version), session=session)


def open_without_graph(folder: Path, content: Manifest, *, closed: bool = False) -> Version:
    """Opens a version that another program predicts with, after checking its manifest against all its files and labels.

    Args:
        folder: the version.
        content: its manifest.
        closed: whether to refuse files that the manifest does not list.

    Raises:
        ModelError: a file is missing or damaged, or files contradict each other.
    """
    return _open(folder, content, closed)[0]


def _open(folder: Path, content: Manifest, closed: bool) -> tuple[Version, dict[str, bytes]]:
    found = files.verify(folder, content, keep=(ONNX, WEIGHTS, PICTURE, LABELS, REFERENCE), closed=closed)
    if LABELS in content.files:
        checks.labels(found[LABELS], content, folder / LABELS)
    conversion, side = None, image_files.SIDE
    if PICTURE in found:
        conversion = open_shared(folder / PICTURE, content.files[PICTURE].sha256, found[PICTURE])
        checks.conversion_graph(conversion, content, folder / PICTURE)
        side = side_of(conversion)
    samples = reference.read(found[REFERENCE], content, folder / REFERENCE) if REFERENCE in found else None
    return Version(folder, content, conversion, samples, side), found


def side_of(conversion: Any) -> int:
    """Returns the side that the metadata of a session of `picture.onnx` name; the default for older files."""
    return int(conversion.get_modelmeta().custom_metadata_map.get(SIDE, image_files.SIDE))


def _run(session: Any, names: Sequence[str], inputs: dict[str, np.ndarray], content: Manifest) -> dict[str, np.ndarray]:
    """Returns outputs of a graph by name."""
    try:
        return dict(zip(names, session.run(names, inputs), strict=True))
    except MemoryError:
        raise
    except Exception as error:
        # ONNX Runtime's exceptions share no other base.
        raise OutputError(f"{checks.named(content)} failed: {fault(error)}") from error


def _cut(rgba: np.ndarray, boxes: np.ndarray) -> list[np.ndarray]:
    """Cuts digits out of an image, with a margin that ends halfway to their neighbours."""
    height, width = rgba.shape[:2]
    pixels = boxes * (height, height, width, width)
    parts = []
    for number, (top, bottom, left, right) in enumerate(pixels):
        room = MARGIN * max(bottom - top, right - left)
        ends = [max(top - room, 0), min(bottom + room, height), max(left - room, 0), min(right + room, width)]
        for other in np.delete(pixels, number, axis=0):
            beside = min(bottom, other[1]) > max(top, other[0])
            if beside and other[2] < left:
                ends[2] = max(ends[2], min((other[3] + left) / 2, left))
            elif beside:
                ends[3] = min(ends[3], max((right + other[2]) / 2, right))
            elif other[0] < top:
                ends[0] = max(ends[0], (other[1] + top) / 2)
            else:
                ends[1] = min(ends[1], (bottom + other[0]) / 2)
        first, last, start, end = (int(value) for value in np.round(ends))
        parts.append(rgba[first : max(last, first + 1), start : max(end, start + 1)])
    return parts


def above_half(probabilities: Sequence[float] | np.ndarray, labels: Sequence[str]) -> list[str]:
    """Returns the classes with a probability above one half, the most probable first.

    Args:
        probabilities: `[classes]`, independent of each other.
        labels: names of the classes.
    """
    found = [place for place, one in enumerate(probabilities) if one > 0.5]
    return [labels[place] for place in sorted(found, key=lambda place: -probabilities[place])]


def top(probabilities: np.ndarray, count: int) -> np.ndarray:
    """Returns the most probable classes; equal ones in the order of their indices.

    Args:
        probabilities: `[batch, classes]`.
        count: number of classes; all of them if there are fewer.

    Returns:
        Class indices, int64 `[batch, min(count, classes)]`.

    Example:
        top(np.array([[0.1, 0.7, 0.2]]), 2)  # [[1, 2]]
    """
    return (-probabilities).argsort(axis=-1, kind="stable")[:, :count]
