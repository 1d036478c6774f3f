"""Exports a run as a version of a model, atomically and with measured parity, and verifies versions."""

import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import check_writable, replacing
from pipelines.core.run import FILES, DataRecord, Run, Weights, load_model, model_file, open_run, resuming
from pipelines.export import forms, metadata, parity, version
from serving import files, manifest, repository, signature
from serving.errors import ServingError
from serving.inputs import RowInput
from serving.manifest import ConversionKind
from serving.measurements import Parity

if TYPE_CHECKING:
    import keras
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey


def export(
    path: Path,
    to: Path | None = None,
    weights: Weights = "final",
    data_dir: Path | None = None,
    *,
    gates: bool = True,
    optional: Collection[str] = (),
    calibrate: bool = False,
    conversion: ConversionKind | None = None,
    sign: Path | None = None,
    force: bool = False,
) -> Path:
    """Exports a run as the next version of a model.

    Args:
        path: the run directory.
        to: the folder of the model's versions; None is `models/` and the run directory's name.
        weights: "final" or "best".
        data_dir: folder of prepared data, for the images on which parity is measured; None for the TFDS default.
        gates: whether the graphs return `gate_means`; ignored for a net without highway layers.
        optional: keys of the optional forms to write too, such as "int8".
        calibrate: whether to calibrate the probabilities on the validation split, by a temperature.
        conversion: how image files become inputs; None chooses by the data set and `image_fit` of the run.
        sign: the key to sign the version with; None leaves it unsigned.
        force: whether the version may have another input or other classes than the newest one in the folder.

    Returns:
        The version folder.

    Raises:
        UserError: the run is unfinished (its best weights so far can be exported) or damaged, its data or the key
            cannot be read, it has no classes or no validation split to calibrate on, the folder cannot be used, an
            option or optional form does not apply, or an exported form does not compute what the Keras model computes.
            In all these cases nothing is written.

    Example:
        export(Path("runs/demo"))  # models/demo/1
    """
    requested = forms.requested(optional)
    run = open_run(path)
    if run.record.state == "running" and weights == "final":
        best = " Or export its best epoch so far: --weights best." if (path / FILES["best"]).exists() else ""
        command = resuming(path, backend=run.record.backend, data_dir=data_dir)
        raise UserError(f"{path} is unfinished, after {run.record.step} steps. Finish it with `{command}`.{best}")
    _check_options(run, pictures=conversion is not None, calibrate=calibrate, optional=optional)
    model_file(run, weights, data_dir)
    to = to or default_folder(run.path)
    check_folder(to, run.path, None if force else run.record.data)
    # Read first, so that an unusable key fails before minutes of work.
    key = _key(sign)
    _use_tensorflow()
    from pipelines.export import version_files

    trained = load_model(run, weights)
    _check_net(run, trained)
    job = version_files.checked_job(
        run, weights, trained, kind=conversion, gates=gates, calibrate=calibrate, data_dir=data_dir
    )
    with version.new_version(to) as (number, folder):
        version_files.write(job, requested, folder, number)
        if key:
            (folder / signature.NAME).write_bytes(signature.sign(folder, key))
    return to / str(number)


def verify(path: Path, sign: Path | None = None) -> tuple[Path, Parity]:
    """Checks an exported version using nothing but its files.

    Args:
        path: a version folder, or a model's folder for its newest version.
        sign: the key to sign the version with afterwards; None leaves it as it is.

    Returns:
        The version folder and the measurements.

    Raises:
        UserError: a file is missing, damaged or added, or a form does not compute what the Keras model computed.

    Example:
        verify(Path("models/demo"))
    """
    try:
        folder = repository.find(path)
        content = manifest.read(folder)
        files.verify(folder, content, closed=True)
    except ServingError as error:
        raise UserError(str(error)) from error
    key = _key(sign)
    _use_tensorflow()
    from pipelines.export import reference

    expected = reference.load(folder)
    assert content.pictures or content.is_table, "a version with a reference has a kind of images"
    measured = parity.measure(
        folder,
        forms.present(content.files),
        expected,
        split=content.parity.split,
        labels=content.labels,
        kind=content.pictures,
        # It was measured on as many images as were exported; of nets of the package, only a few are stored.
        precision=content.parity.precision if len(expected.images) == content.parity.images else None,
    )
    if key:
        with replacing(folder / signature.NAME) as aside:
            aside.write_bytes(signature.sign(folder, key))
    return folder, measured


def default_folder(run: Path) -> Path:
    """Returns the folder for the versions of a run: `models/` and the name of the run directory."""
    return Path("models") / run.resolve().name


def check_folder(to: Path, run: Path, data: DataRecord | None) -> None:
    """Checks that a folder takes a version of a net, before anything is computed.

    Args:
        to: the folder of the model's versions, which may be missing.
        run: the run directory.
        data: data of the run, whose input and classes must be those of the newest version; None accepts any.

    Raises:
        UserError: the folder is the folder of all models, cannot be read or written, or holds another model.
    """
    if ":" in to.name:
        raise UserError(
            f"{to.name} cannot be the name of a model: a colon ends it in TF Serving's paths, such as "
            "/v1/models/NAME:predict. Name another folder with --to."
        )
    try:
        versions, models = repository.versions(to), repository.models(to)
    except OSError as error:
        raise UserError(f"{to} cannot be read: {error.strerror}. Name another folder with --to.") from error
    # "models" is the folder that `highway serve` reads, and may not exist yet.
    if not versions and (models or to.name == "models"):
        raise UserError(f"{to} is the folder of all models. Name the model: --to {to / run.resolve().name}.")
    check_writable(to)
    if versions and data:
        _check_model(to, versions[-1], run, data)


def _check_model(to: Path, version: int, run: Path, data: DataRecord) -> None:
    """Refuses a net whose input or classes differ from those of a version."""
    try:
        newest = manifest.read(to / str(version))
    except ServingError:
        # A version that cannot be read is not served either.
        return
    taken = metadata.taken(data)
    columns = taken.columns if isinstance(taken, RowInput) else ()
    given = (newest.input.shape[1:], newest.labels, newest.multi_label)
    # Versions that were exported before do not say which columns are dates.
    theirs, ours = ([(one.name, one.categories) for one in each] for each in (newest.columns, columns))
    if given != (data.shape, data.labels, data.multi_label) or theirs != ours:
        raise UserError(
            f"{to} is a model of {_described(*given)}, and {run} is a net of "
            f"{_described(data.shape, data.labels, data.multi_label)}{', with other columns' if newest.columns else ''}"
            ". Name another folder with --to, or export it with --force."
        )


def _described(shape: Sequence[int], labels: Sequence[str], multi_label: bool) -> str:
    more = ", ..." if len(labels) > 3 else ""
    answers = f"{len(labels)} classes ({', '.join(labels[:3])}{more})" if labels else "a number"
    if multi_label:
        answers = f"any number of {answers}"
    return f"{answers} and inputs of {' x '.join(map(str, shape))}"


def _key(path: Path | None) -> "Ed25519PrivateKey | None":
    passphrase = os.environ.get(signature.PASSPHRASE)
    try:
        return signature.private_key(path, os.fsencode(passphrase) if passphrase else None) if path else None
    except ServingError as error:
        raise UserError(str(error)) from error


def _use_tensorflow() -> None:
    # SavedModel and tf2onnx need TensorFlow, whatever the run was trained on; .keras files load on every backend.
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    frameworks.load()
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"export needs Keras on TensorFlow, but this process runs it on {keras.backend.backend()}. "
            "Export in a separate process: `highway export RUN`."
        )


def _check_options(run: Run, *, pictures: bool, calibrate: bool, optional: Collection[str]) -> None:
    """Refuses options that are for images or for classes if there are none."""
    data = run.record.data
    if len(data.shape) == 1 and (pictures or optional):
        option = "--pictures" if pictures else f"--{next(iter(optional))}"
        raise UserError(f"{option} is for images, and {run.path} was trained on rows of a table. Leave it out.")
    if calibrate and not data.labels:
        raise UserError(f"--calibrate is for probabilities, and {run.path} predicts a number. Leave it out.")


def _check_net(run: Run, model: "keras.Model") -> None:
    data = run.record.data
    outputs = (len(data.labels) or 1,)
    if model.input_shape[1:] != data.inputs or model.output_shape[1:] != outputs:
        kind = "images" if len(data.shape) > 1 else "vectors"
        wanted = f"one output for each of the {len(data.labels)} labels" if data.labels else "one output"
        raise UserError(
            f"the net of {run.path} maps {model.input_shape[1:]} to {model.output_shape[1:]}. Expected {kind} "
            f"{data.inputs} and {wanted}."
        )
    if len(data.shape) > 1 and data.shape[2] not in {1, 3}:
        raise UserError(f"images of {data.shape[2]} channels cannot be exported. Expected 1 (grey) or 3 (RGB).")
