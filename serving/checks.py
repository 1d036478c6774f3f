"""Checks that a version passes before it is served: its folder, labels, graphs, and agreement with the Keras model.

`serving.manifest` checks the manifest itself, and `serving.files` the digests. The checks here catch versions that are
intact but would still answer wrongly, or not at all.
"""

from pathlib import Path
from typing import Any

import numpy as np

from serving.errors import ModelError
from serving.inputs import INPUT
from serving.manifest import GATE_MAPS, RGBA, SIDE, VALUE, Manifest
from serving.reference import Samples

# Tolerance of a probability on the reference images, and of a value relative to the spread of the reference values: a
# GPU may multiply in TF32, with its ten bits; a different model is further off.
TOLERANCE = 0.01
# Tolerance of a value relative to itself, where the reference values hardly differ.
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
            f"{path} does not have the {len(content.labels)} labels of the manifest, one a line. Export it again."
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
    _tensors(path, session.get_outputs(), {INPUT: (_UINT8, content.input.shape[1:])}, every=False)
    side = session.get_modelmeta().custom_metadata_map.get(SIDE, "1")
    if not (side.isascii() and side.isdigit() and int(side)):
        raise ModelError(f"{path} names {side!r} as the {SIDE} of images, not a positive number. Export it again.")


def agrees(found: np.ndarray, samples: Samples, content: Manifest) -> bool:
    """Returns whether predictions for the reference examples are those of the Keras model, within the tolerance.

    Args:
        found: the output that the manifest calls `predicted`.
        samples: the reference examples.
        content: the manifest.
    """
    tolerance = TOLERANCE
    if content.predicted == VALUE and samples.predicted.size:
        tolerance = TOLERANCE * float(np.ptp(samples.predicted)) + ROUNDING * float(np.abs(samples.predicted).max())
    return np.allclose(found, samples.predicted, rtol=0, atol=tolerance)


def smoke_test(model: Any) -> None:
    """Predicts with a version and checks the outputs.

    Args:
        model: a `serving.model.Model`.

    Raises:
        ModelError: the outputs do not have the shape in its manifest, are NaN or infinite, or differ from those of the
            Keras model; or an image is not converted to the shape of the input.
    """
    content, samples = model.manifest, model.samples
    where = f"version {content.version} of model {content.name!r}"
    size = content.input.shape[1:]
    inputs = samples.inputs if samples else np.zeros((1, *size), content.input.dtype)
    found = model.predict(inputs)
    for name, value in found.items():
        shape = (len(inputs), *content.outputs[name].shape[1:])
        if value.shape != shape or value.dtype != np.float32:
            raise ModelError(
                f"{where} computes {name} as {value.dtype} {value.shape}, its manifest says float32 {shape}. Export it "
                "again."
            )
        if not np.isfinite(value).all():
            raise ModelError(f"{where} computes NaN or infinity as {name}. Train and export it again.")
    if samples and not agrees(found[content.predicted], samples, content):
        raise ModelError(f"{where} does not predict like the Keras model it was exported from. Export it again.")
    if model.conversion is not None and (converted := model.to_input(_stroke())).shape != size:
        raise ModelError(f"{where} converts an image to {converted.shape}, and takes {size}. Export it again.")


def _stroke() -> np.ndarray:
    drawn = np.full((32, 32, 4), 255, np.uint8)
    drawn[8:24, 14:18, :3] = 0
    return drawn


def _tensors(
    path: Path, found: list[Any], expected: dict[str, tuple[str, tuple[int | None, ...]]], every: bool
) -> None:
    """Checks the tensors of a graph: a dynamic dimension fits any size, and the batch must be dynamic."""
    tensors = {one.name: one for one in found}
    if missing := expected.keys() - tensors.keys():
        raise ModelError(f"{path} has no {' and '.join(sorted(missing))}, which the manifest names. Export it again.")
    if every and (others := tensors.keys() - expected.keys()):
        raise ModelError(
            f"{path} takes {' and '.join(sorted(others))} too, which the manifest does not name. Export it again."
        )
    for name, (kind, shape) in expected.items():
        # A dynamic dimension is a name, or None.
        sizes = [size if isinstance(size, int) else None for size in tensors[name].shape]
        fits = len(sizes) == len(shape) and all(
            one is None or one == other for one, other in zip(sizes, shape, strict=False)
        )
        if tensors[name].type != kind or not fits:
            raise ModelError(
                f"{path} has {name} as {tensors[name].type} {sizes}, the manifest says {kind} {list(shape)}. "
                "Export it again."
            )
