"""Trained nets that come with the package: a model repository whose weights the library also reads.

    python -m pipelines.verbs.pretrained RUN NAME
    python -m pipelines.verbs.pretrained --images

A net is stored once. `weights.npz` holds kernels in float16, if the net answers as exactly as without rounding, or else
in float32, and everything else, which is small, in float32, under the paths of Keras's variables. `model.onnx` has no
weights of its own and points into that file.
"""

import shutil
import struct
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.core.console import next_command
from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.run import load_model, open_run
from pipelines.export import parity
from pipelines.export.export import export
from pipelines.training import evaluation
from serving import files, manifest
from serving.manifest import GATE_MEANS, LABELS, ONNX, PICTURE, PROBABILITIES, REFERENCE, WEIGHTS
from serving.measurements import Agreement
from serving.reference import CLASSES, SHOWN

if TYPE_CHECKING:
    import keras

# Largest accepted differences of a probability and of the test accuracy: rounding the weights to float16 moves
# probabilities by more than an exact form may.
TOLERANCE, ACCURACY = 0.02, 0.0002
# Largest size of all nets together.
MOST_BYTES = 15 * 10**6
BATCH = 500


class _InexactError(UserError):
    """The answers of a stored net differ too much from those of the run's net."""


def write(path: Path, to: Path, data_dir: Path | None = None) -> Path:
    """Writes a trained net as version 1 of a model, with kernels in float16 or, if it needs them, in float32.

    Args:
        path: an evaluated run with validation images, on which probabilities are calibrated.
        to: folder of the model's versions, in a repository; must not exist.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        The version folder.

    Raises:
        UserError: the run cannot be exported or has not been evaluated, the stored net answers differently even with
            kernels in float32, the repository would become too large, or the folder exists.

    Example:
        write(Path("runs/cifar10"), Path("highway_keras/trained/cifar10"))
    """
    if to.exists():
        raise UserError(f"{to} exists already. Remove it first, or name another model.")
    if evaluation.of_run(open_run(path)) is None:
        raise UserError(f"{path} has not been evaluated. Evaluate it first: {next_command('evaluate', path)}")
    with TemporaryDirectory() as temporary:
        exact = export(path, Path(temporary) / to.name, data_dir=data_dir, calibrate=True)
        folder = Path(temporary) / "compact" / to.name / "1"
        try:
            _write_version(path, exact, folder, np.float16, data_dir)
        except _InexactError:
            shutil.rmtree(folder)
            _write_version(path, exact, folder, np.float32, data_dir)
        _check_size(folder, to.parent)
        shutil.copytree(folder.parent, to)
    return to / "1"


def refresh_images(folder: Path) -> None:
    """Updates the conversion of image files of a net of the package to that of the current code.

    Args:
        folder: its version folder.

    Example:
        refresh_images(Path("highway_keras/trained/mnist/1"))
    """
    from pipelines.export import onnx_model

    content = manifest.read(folder)
    assert content.pictures, "nets of the package take images"
    (folder / PICTURE).write_bytes(onnx_model.build_picture(content.pictures, content.input.shape[1:]))
    described = content.model_copy(update={"files": {**content.files, PICTURE: files.digest(folder / PICTURE)}})
    write_text(folder / manifest.NAME, described.model_dump_json(indent=2) + "\n")


def _write_version(path: Path, exact: Path, folder: Path, kernels: type[np.floating], data_dir: Path | None) -> None:
    """Writes a version with kernels of a type, from an exact one; raises `_InexactError` if it answers differently."""
    folder.mkdir(parents=True)
    for name in (LABELS, PICTURE):
        shutil.copy(exact / name, folder / name)
    content = manifest.read(exact)
    mean = _write_net(path, content, folder, kernels)
    _write_samples(exact, folder)
    tested = _evaluated(path, content, exact, folder, data_dir)
    described = content.model_copy(
        update={
            "run": content.run.model_copy(update={"test": tested}),
            "files": files.digests(folder),
            "parity": content.parity.model_copy(update={"onnx": _agreement(folder, exact, content)}),
            # For users of the Keras net; the graphs contain the temperature.
            "preprocess": {**content.preprocess, "mean_values": mean},
        }
    )
    write_text(folder / manifest.NAME, described.model_dump_json(indent=2) + "\n")


def _check_size(folder: Path, repository: Path) -> None:
    stored = [path for root in (folder, repository) for path in root.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in stored)
    if size > MOST_BYTES:
        raise UserError(
            f"with this net, all nets of {repository} would take {size / 1e6:.1f} MB, and may take "
            f"{MOST_BYTES / 1e6:g} MB. Remove another net first, or write a smaller one."
        )


def _evaluated(
    path: Path, content: manifest.Manifest, exact: Path, folder: Path, data_dir: Path | None
) -> dict[str, Any]:
    """Evaluates the written net on the test split, with calibrated probabilities; compares it with the exact one."""
    from pipelines.data import sources
    from pipelines.export import onnx_model

    assert content.run.test, "checked before"
    config = open_run(path).config
    examples = sources.load(config.data, "test", data_dir, config.validation, config.subset)
    assert isinstance(examples, sources.Examples), "nets of the package are trained on data that fit into memory"
    batches = [examples.images[start : start + BATCH] for start in range(0, len(examples), BATCH)]

    def probabilities(version: Path) -> np.ndarray:
        predict = onnx_model.predictor(version / ONNX)
        return np.concatenate([predict(batch)[PROBABILITIES] for batch in batches])

    logits = np.log(np.maximum(probabilities(folder), np.finfo(np.float32).tiny))
    found = evaluation.measure(logits, examples.labels, content.labels, content.model.weights, content.run.test["data"])
    # Not with the evaluation of the run, which may have been in bfloat16.
    accuracy = float((probabilities(exact).argmax(axis=1) == examples.labels).mean())
    if abs(found.accuracy - accuracy) > ACCURACY:
        raise _InexactError(
            f"the stored weights change the accuracy: {found.accuracy:.2%} of the test images are right, and "
            f"{accuracy:.2%} with the run's own weights, both computed in float32. Write another run."
        )
    return found.model_dump(mode="json", exclude={"weights", "classes", "confusion", "mirrored"})


def _write_net(path: Path, content: manifest.Manifest, folder: Path, kernels: type[np.floating]) -> Any:
    """Writes graph and weights; returns the mean that is subtracted from the pixels."""
    import onnx

    from pipelines.data import preprocess
    from pipelines.export import graph, onnx_model

    run = open_run(path)
    net = graph.in_float32(load_model(run))
    assert content.temperature is not None, "exported with calibration"
    net = graph.with_temperature(net, content.temperature)
    stored = {weight.path: _stored(weight, kernels) for weight in net.weights}
    with (folder / WEIGHTS).open("wb") as file:
        np.savez(file, allow_pickle=False, **stored)
    fitted = preprocess.load(run.path / "preprocess.npz")
    dtypes = [array.dtype for array in stored.values()]
    proto = onnx_model.converted(graph.prediction_of_weights(net, fitted, content.labels, dtypes))
    onnx_model.name_batch(proto)
    _point_at_weights(proto.graph, list(stored.items()), folder / WEIGHTS)
    onnx.save(proto, folder / ONNX)
    onnx.checker.check_model(folder / ONNX, full_check=True)
    return 0.0 if fitted.mean is None else fitted.mean.tolist()


def _stored(weight: "keras.Variable", kernels: type[np.floating]) -> np.ndarray:
    array = np.ascontiguousarray(weight)
    return array.astype(kernels if array.ndim > 1 else np.float32)


def _point_at_weights(graph: Any, stored: list[tuple[str, np.ndarray]], path: Path) -> None:
    """Replaces the inputs of an ONNX graph that are weights by initializers in a file."""
    from onnx import TensorProto, helper

    from pipelines.export.graph import WEIGHT

    offsets = _offsets(path)
    for value in [value for value in graph.input if value.name.startswith(WEIGHT)]:
        graph.input.remove(value)
        name, array = stored[int(value.name.removeprefix(WEIGHT).partition(":")[0])]
        tensor = TensorProto(name=value.name, data_type=helper.np_dtype_to_tensor_dtype(array.dtype), dims=array.shape)
        tensor.data_location = TensorProto.EXTERNAL
        where = {"location": path.name, "offset": offsets[name], "length": array.nbytes}
        for key, item in where.items():
            tensor.external_data.add(key=key, value=str(item))
        graph.initializer.append(tensor)


def _offsets(path: Path) -> dict[str, int]:
    """Returns the position of the first value of each array in an uncompressed `.npz` file."""
    found = {}
    with zipfile.ZipFile(path) as archive, path.open("rb") as file:
        for member in archive.infolist():
            # The lengths of name and extra field are in the local header, which ends with both.
            file.seek(member.header_offset + 26)
            name, extra = struct.unpack("<HH", file.read(4))
            file.seek(extra + name, 1)
            np.lib.format.read_magic(file)
            np.lib.format.read_array_header_1_0(file)
            found[member.filename.removesuffix(".npy")] = file.tell()
    return found


def _write_samples(exact: Path, folder: Path) -> None:
    """Writes one image of each class, with the written net's answers: for the trial on opening, and as samples."""
    from pipelines.export import onnx_model, reference

    with np.load(exact / REFERENCE, allow_pickle=False) as kept:
        images, classes = kept["images"], kept[CLASSES]
    _, first = np.unique(classes, return_index=True)
    first = first[np.linspace(0, len(first) - 1, min(SHOWN, len(first))).astype(int)]
    found = onnx_model.predictor(folder / ONNX)(images[first])
    probabilities = found[PROBABILITIES]
    none = images[:0], probabilities[:0]
    samples = reference.Reference(images[first], probabilities, found[GATE_MEANS], *none)
    reference.save(samples, classes[first], folder)


def _agreement(folder: Path, exact: Path, content: manifest.Manifest) -> Agreement:
    from pipelines.export import onnx_model, reference

    expected = reference.load(exact)
    outputs = onnx_model.predictor(folder / ONNX)(expected.images)
    found = parity.compare(expected.probabilities, content.labels, outputs, expected.gate_means, TOLERANCE)
    if not parity.passes(found, len(expected.images), TOLERANCE):
        raise _InexactError(
            f"with the stored weights, probabilities differ by up to {found.max_abs_difference:.2g} (tolerance "
            f"{TOLERANCE:g}), and {found.same_label + found.ties} of {len(expected.images)} labels agree."
        )
    return found
