"""Checks that a version passes before it is served: its folder, labels, graphs, and agreement with the Keras model.

`serving.manifest` checks the manifest itself, and `serving.files` the digests. The checks here catch versions that are
intact but would still answer wrongly, or not at all. What shows only with some inputs is checked in each answer: see
`sizes`, `values` and `converted`.
"""

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import ModelError, OutputError, SmokeTestError, in_brackets
from serving.inputs import INPUT
from serving.manifest import BOXES, CROP, GATE_MAPS, MOST_DIGITS, PROBABILITIES, RGBA, SIDE, VALUE, Manifest
from serving.package import again
from serving.reference import COMPARED, Samples

# Tolerance of a probability on the reference images, and of a value relative to the spread of the reference values: a
# GPU may multiply in TF32, with its ten bits; a different model is further off.
TOLERANCE = 0.01
# Tolerance of a value relative to itself, where the reference values hardly differ, and of a number from 0 to 1.
ROUNDING = 1e-5
# Types of tensors, by their names in ONNX Runtime.
_UINT8, _FLOAT = "tensor(uint8)", "tensor(float)"
_KINDS = {"uint8": _UINT8, "float32": _FLOAT}


def place(folder: Path, content: Manifest) -> None:
    """Checks that a manifest names the model and version of its folder.

    Args:
        folder: the version, in a repository.
        content: its manifest.

    Raises:
        ModelError: they differ.
    """
    if (content.name, str(content.version)) != (folder.parent.name, folder.name):
        raise ModelError(
            f"{folder} has the manifest of version {content.version} of model {content.name!r}. A version is served "
            "under the name and number that it was exported with: move it there, or export it again with --to."
        )


def labels(text: bytes, content: Manifest, path: Path) -> None:
    """Checks that `labels.txt` has the labels of a manifest.

    Raises:
        ModelError: they differ.
    """
    if text.decode(errors="replace") != "".join(f"{label}\n" for label in content.labels):
        raise ModelError(
            f"{path} does not have the {len(content.labels)} labels of the manifest, one a line. {again(path)}."
        )


def graph(session: Any, content: Manifest, path: Path) -> None:
    """Checks inputs and outputs of the prediction graph.

    Args:
        session: session of the graph.
        content: the manifest.
        path: path of the graph, for the message.

    Raises:
        ModelError: an input or output is missing, or has another type or shape.
    """
    taken: dict[str, tuple[str, tuple[int | None, ...]]]
    taken = {content.input.name: (_KINDS[content.input.dtype], content.input.shape)}
    _tensors(path, session.get_inputs(), taken, every=True)
    computed: dict[str, tuple[str, tuple[int | None, ...]]]
    computed = {name: (_FLOAT, content.outputs[name].shape) for name in content.computed}
    if content.maps:
        computed[GATE_MAPS] = (_FLOAT, (None, content.positions))
    _tensors(path, session.get_outputs(), computed, every=False)


def conversion_graph(session: Any, content: Manifest, path: Path) -> None:
    """Checks inputs and outputs of `picture.onnx`; see `graph`."""
    _tensors(path, session.get_inputs(), {RGBA: (_UINT8, (None, None, 4))}, every=True)
    given = {output.name for output in session.get_outputs()}
    optional = {BOXES: (None, 4), CROP: (4,)}
    computed: dict[str, tuple[str, tuple[int | None, ...]]]
    computed = {INPUT: (_UINT8, content.input.shape[1:])}
    computed |= {name: (_FLOAT, shape) for name, shape in optional.items() if name in given}
    _tensors(path, session.get_outputs(), computed, every=False)
    side = session.get_modelmeta().custom_metadata_map.get(SIDE, "1")
    if not (side.isascii() and side.isdigit() and int(side)):
        raise ModelError(f"{path} names {side!r} as the {SIDE} of images, not a positive number. {again(path)}.")


def agrees(found: np.ndarray, samples: Samples, content: Manifest) -> bool:
    """Returns whether predictions for the reference examples are those of the Keras model, within the tolerance.

    Args:
        found: the output that the manifest calls `predicted`, for the examples in their order, from the first again
            after the last.
        samples: the reference examples.
        content: the manifest.
    """
    tolerance = TOLERANCE
    if content.predicted == VALUE:
        tolerance = TOLERANCE * float(np.ptp(samples.predicted)) + ROUNDING * float(np.abs(samples.predicted).max())
    # A batch may have the examples several times.
    return np.allclose(found, np.resize(samples.predicted, found.shape), rtol=0, atol=tolerance)


def sizes(outputs: Mapping[str, np.ndarray], count: int, content: Manifest) -> None:
    """Checks that there are as many outputs as inputs, of the sizes in a manifest.

    Args:
        outputs: arrays by name.
        count: number of images or rows.
        content: the manifest.

    Raises:
        OutputError: an output has another shape.
    """
    for name, value in outputs.items():
        shape = (count, content.positions) if name == GATE_MAPS else (count, *content.outputs[name].shape[1:])
        if value.shape != shape:
            raise OutputError(
                f"{named(content)} computes {name} as {value.dtype} {value.shape}, its manifest says float32 {shape}"
            )


def values(outputs: Mapping[str, np.ndarray], content: Manifest) -> None:
    """Checks the numbers that answer a request.

    Args:
        outputs: arrays by name.
        content: the manifest.

    Raises:
        OutputError: one is NaN or infinite, or probabilities are not from 0 to 1 or do not sum to 1.
    """
    # JSON cannot express NaN, and a class derived from it would look like an answer.
    for name, value in outputs.items():
        flat = value.ravel()
        # The sum of squares is finite if all are, and faster to compute than which are.
        if not math.isfinite(flat.dot(flat)) and not np.isfinite(value).all():
            wrong = int(np.argmin(np.isfinite(value).all(axis=-1)))
            raise OutputError(f"{named(content)} computed NaN or infinity as {name} of {content.unit} {wrong + 1}")
    if (found := outputs.get(PROBABILITIES)) is not None and found.size:
        _check_probabilities(found, content)


def converted(outputs: Mapping[str, np.ndarray], content: Manifest) -> None:
    """Checks the outputs of `picture.onnx`.

    Args:
        outputs: arrays by name.
        content: the manifest.

    Raises:
        OutputError: the image is not an input of the net, or a digit or the crop is not a part of it.
    """
    image, size = outputs[INPUT], content.input.shape[1:]
    if image.shape != size:
        raise OutputError(f"{named(content)} converts an image to {image.shape}, and takes {size}")
    if (count := len(outputs.get(BOXES, ()))) > MOST_DIGITS:
        raise OutputError(f"{named(content)} found {count} digits in an image, more than {MOST_DIGITS}")
    for name, shape in ((BOXES, (count, 4)), (CROP, (4,))):
        if (found := outputs.get(name)) is not None and not (found.shape == shape and _is_within(found)):
            raise OutputError(f"{named(content)} computed {name} outside the image")


def smoke_test(model: Any) -> None:
    """Predicts with a version and checks the outputs.

    Args:
        model: a `serving.model.Model`.

    Raises:
        ModelError: the outputs cannot be answers, or differ from those of the Keras model; or see `conversion`.
        SmokeTestError: a graph failed.
    """
    content, samples = model.manifest, model.samples
    inputs = samples.inputs if samples else np.zeros((COMPARED, *content.input.shape[1:]), content.input.dtype)
    # A graph may have been traced with the number of samples.
    for batch in (inputs, np.resize(inputs, (2 * len(inputs) + 1, *inputs.shape[1:]))):
        with refusing(model.folder):
            found = model.predict(batch)
            sizes(found, len(batch), content)
            values(found, content)
            if content.maps and batch is not inputs:
                values(model.predict_maps(batch), content)
        if samples and not agrees(found[content.predicted], samples, content):
            raise ModelError(
                f"{named(content)} does not predict like the Keras model it was exported from. {again(model.folder)}."
            )
    conversion(model)


def conversion(version: Any) -> None:
    """Converts a few images with a version, if it takes image files.

    Args:
        version: a `serving.model.Version`.

    Raises:
        ModelError: the results are not inputs of the net with their digits or crop.
        SmokeTestError: the graph failed.
    """
    if version.conversion is None:
        return
    for rgba in _drawn():
        with refusing(version.folder):
            version.see(rgba, segments=True)


@contextmanager
def refusing(folder: Path) -> Iterator[None]:
    """Refuses the version in a folder if its outputs in the block cannot be answers."""
    try:
        yield
    except OutputError as error:
        # A graph that failed may have lacked memory: the version is tried again.
        kind = SmokeTestError if error.__cause__ else ModelError
        raise kind(f"{error.fault}. {again(folder, 'Train and export it again')}.") from error


def named(content: Manifest) -> str:
    """Returns how messages name a version."""
    return f"version {content.version} of model {content.name!r}"


def _check_probabilities(found: np.ndarray, content: Manifest) -> None:
    flat = found.ravel()
    # For a few numbers, five times as fast as the minimum and the maximum.
    least, most = flat.item(flat.argmin()), flat.item(flat.argmax())
    if least < 0 or most > 1 + ROUNDING:
        raise OutputError(f"{named(content)} computed probabilities from {least:.3g} to {most:.3g}")
    if content.multi_label:
        return
    # A product is three times as fast as a sum along an axis.
    sums = found.dot(_ones(found.shape[-1]))
    for place in (sums.argmin(), sums.argmax()):
        if abs(sums.item(place) - 1) > TOLERANCE:
            raise OutputError(
                f"{named(content)} computed probabilities of {content.unit} {place + 1} that sum to {sums[place]:.3g}"
            )


@cache
def _ones(count: int) -> np.ndarray:
    return np.ones(count, np.float32)


def _is_within(parts: np.ndarray) -> bool:
    """Returns whether parts of an image, top, bottom, left and right from 0 to 1, are in it; NaN is not."""
    starts, ends = parts[..., ::2], parts[..., 1::2]
    return bool((starts >= -ROUNDING).all() and (starts <= ends).all() and (ends <= 1 + ROUNDING).all())


def _drawn() -> list[np.ndarray]:
    """Returns images that differ most: of one stroke, of two, without any, and as small and as wide as can be."""
    one, two = np.full((32, 32, 4), 255, np.uint8), np.full((32, 64, 4), 255, np.uint8)
    one[8:24, 14:18, :3] = two[8:24, 14:18, :3] = two[8:24, 46:50, :3] = 0
    blank = np.full((32, 32, 4), 255, np.uint8)
    return [one, two, blank, blank[:1, :1], blank[:1]]


def _tensors(
    path: Path, found: list[Any], expected: dict[str, tuple[str, tuple[int | None, ...]]], every: bool
) -> None:
    """Checks the tensors of a graph: a dynamic dimension fits any size, and the batch must be dynamic."""
    tensors = {one.name: one for one in found}
    if missing := expected.keys() - tensors.keys():
        raise ModelError(f"{path} has no {' and '.join(sorted(missing))}, which the manifest names. {again(path)}.")
    if every and (others := tensors.keys() - expected.keys()):
        raise ModelError(
            f"{path} takes {' and '.join(sorted(others))} too, which the manifest does not name. {again(path)}."
        )
    for name, (kind, shape) in expected.items():
        # A dynamic dimension is a name, or None.
        sizes = [size if isinstance(size, int) else None for size in tensors[name].shape]
        fits = len(sizes) == len(shape) and all(
            one is None or one == other for one, other in zip(sizes, shape, strict=False)
        )
        if tensors[name].type != kind or not fits:
            raise ModelError(
                f"{path} has {name} as {tensors[name].type} {in_brackets(sizes)}, the manifest says {kind} "
                f"{in_brackets(shape)}. {again(path)}."
            )
