"""Writes and measures the files of a version."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from rich.console import Console

from highway_keras.analysis import highway_layers
from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.run import Run, Weights
from pipelines.data import preprocess, sources
from pipelines.data.images import conversion
from pipelines.data.own import prepare as own
from pipelines.export import graph, metadata, parity, reference
from pipelines.export.form import Form, Split, TracedNet
from pipelines.training.evaluation import fit_temperature
from serving import manifest
from serving.manifest import ConversionKind

# Most held-out images that a temperature is fitted on, and how many of them are computed at once.
CALIBRATION, BATCH = 10_000, 500


@dataclass(frozen=True)
class ExportJob:
    """A run that is ready to be exported."""

    run: Run
    weights: Weights
    trained: keras.Model
    test: dict[str, Any] | None
    kind: ConversionKind | None
    """Conversion of image files to inputs; None for rows of a table."""
    gates: bool
    data_dir: Path | None
    split: Split
    """Split of the parity images or rows: validation if the run has one, else train; never test."""
    images: np.ndarray
    classes: np.ndarray
    """Their classes; or 1 for each of several classes, uint8 [n, classes]; or the targets of a regression."""
    temperature: float | None = None
    """Number by which the logits are divided; None leaves them as they are."""


def checked_job(
    run: Run,
    weights: Weights,
    trained: keras.Model,
    *,
    kind: ConversionKind | None,
    gates: bool,
    calibrate: bool,
    data_dir: Path | None,
) -> ExportJob:
    """Loads the parity images and checks the request before anything is written.

    Args:
        run: the finished run.
        weights: which of the run's weights.
        trained: the net with these weights.
        kind: how image files become inputs; None chooses by the data set, and is for rows of a table.
        gates: whether the graphs return gate means, if the net has highway layers.
        calibrate: whether to divide the logits by a temperature fitted on the validation split.
        data_dir: folder of prepared data.

    Raises:
        UserError: the data or the evaluation cannot be read, the data differ from the run's, or there is no validation
            split to calibrate on.
    """
    data = run.record.data
    held_out = data.counts.get("validation")
    if calibrate and not held_out:
        raise UserError(
            f"probabilities are calibrated on examples that the net was not trained on, and {run.path} has no "
            "validation split. Train with --validation NUMBER, or leave out --calibrate."
        )
    split: Split = "validation" if held_out else "train"
    own.restore(run.config, Console(stderr=True))
    images, classes = _examples(run, data_dir, split, parity.IMAGES)
    if images.shape[1:] != data.shape:
        raise UserError(
            f"the examples of '{run.config.data}' are {images.shape[1:]}, but {run.path} was trained on examples of "
            f"{data.shape}. Name the folder of the right data with --data-dir."
        )
    test = metadata.test_result(run, weights, calibrated=calibrate)
    if len(data.shape) > 1:
        kind = kind or conversion.kind_of(data.name, run.config.image_fit)
    temperature = _temperature(run, trained, *_examples(run, data_dir, split, CALIBRATION)) if calibrate else None
    gates = gates and _has_gates(trained)
    return ExportJob(run, weights, trained, test, kind, gates, data_dir, split, images, classes, temperature)


def write(job: ExportJob, forms: Sequence[Form], folder: Path, version: int) -> None:
    """Writes and measures a version.

    Args:
        job: the result of `checked_job`.
        forms: forms to write.
        folder: an empty folder inside the model's folder, which has the model's name.
        version: number of the version.

    Raises:
        UserError: a form does not compute what the Keras model computes.
    """
    run, data = job.run, job.run.record.data
    labels, shape = data.labels, data.shape
    fitted = preprocess.load(run.path / "preprocess.npz")
    model, trained = graph.in_float32(job.trained), job.trained
    if job.temperature is not None:
        model, trained = (graph.with_temperature(net, job.temperature) for net in (model, trained))
    convert: graph.Function | None = None
    side = 0
    if job.kind is not None:
        convert, side = conversion.converter(job.kind, shape), conversion.side_of(job.kind, shape)
    targets = None if labels else job.classes
    expected, gates = reference.compute(
        model,
        fitted,
        job.images,
        convert=convert,
        kind=job.kind,
        gates=job.gates,
        targets=targets,
        multi_label=data.multi_label,
    )
    columns = shape[0] if job.kind is None else None
    source = TracedNet(
        predict=graph.prediction(model, fitted, labels, job.gates, columns, multi_label=data.multi_label),
        convert=convert,
        side=side,
        images=job.images,
        files=expected.files(job.kind),
        split=job.split,
        examples=lambda split, count: _examples(run, job.data_dir, split, count),
    )
    sections: dict[str, Any] = {form.key: form.write(source, folder) for form in forms}
    if labels:
        (folder / manifest.LABELS).write_text("".join(f"{label}\n" for label in labels), "utf-8")
    reference.save(expected, job.classes, folder)
    precision = None
    if _is_mixed(job.trained):
        if labels:
            narrow = reference.keras_probabilities(trained, fitted, job.images, multi_label=data.multi_label)
        else:
            narrow = reference.keras_values(trained, fitted, job.images)
        precision = parity.of_precision(expected, narrow, labels)
    measured = parity.measure(
        folder, forms, expected, split=job.split, labels=labels, kind=job.kind, precision=precision
    )
    content = metadata.describe(
        run,
        job.weights,
        version,
        folder,
        test=job.test,
        kind=job.kind,
        gates=gates if job.gates else None,
        maps=graph.map_shapes(model) if job.gates else (),
        temperature=job.temperature,
        parity=measured,
        sections={key: section for key, section in sections.items() if section},
    )
    write_text(folder / manifest.NAME, content.model_dump_json(indent=2) + "\n")


def _has_gates(model: keras.Model) -> bool:
    try:
        highway_layers(model, np.zeros((1, *model.input_shape[1:]), "float32"))
    except ValueError:
        return False
    return True


def _examples(run: Run, data_dir: Path | None, split: Split, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns evenly spaced images or rows of a split, with their classes or targets."""
    found = sources.load(run.config.data, split, data_dir, run.config.validation, run.config.subset)
    if isinstance(found, sources.Examples):
        images, labels = found.images, found.labels
    else:
        # Data too large for memory arrives in batches that TFDS has shuffled, so the first ones are a fair sample.
        images, labels = found.first(count)
    chosen = np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)
    return images[chosen], labels[chosen]


def _temperature(run: Run, trained: keras.Model, images: np.ndarray, classes: np.ndarray) -> float:
    fitted, model = preprocess.load(run.path / "preprocess.npz"), graph.in_float32(trained)
    batches = np.split(images, range(BATCH, len(images), BATCH))
    logits = [model(preprocess.apply(fitted, tf.constant(batch)), training=False) for batch in batches]
    return fit_temperature(np.concatenate([keras.ops.convert_to_numpy(batch) for batch in logits]), classes)


def _is_mixed(model: keras.Model) -> bool:
    # Loading from a file loses the policy of the model itself, but keeps the policies of its layers.
    return any(layer.compute_dtype != "float32" for layer in model.layers)
