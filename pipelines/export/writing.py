"""A version's files, in the order in which each needs the one before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import keras
import numpy as np

from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.run import Run, Weights
from pipelines.data import preprocess, sources
from pipelines.data.images import kinds
from pipelines.export import artefacts, graph, int8, parity, record, reference, warmup
from serving import manifest
from serving.manifest import PictureKind

# Pictures that int8 takes its ranges from, and at most so many that its accuracy is measured on.
CALIBRATION, JUDGED = 512, 10_000


@dataclass(frozen=True)
class Job:
    """What is to be written."""

    run: Run
    weights: Weights
    trained: keras.Model
    kind: PictureKind
    gates: bool
    data_dir: Path | None
    split: Literal["validation", "train"]
    """Where the pictures of the parity are from: where there is a validation split, from there, and never from test."""
    images: np.ndarray


def prepare(
    run: Run, weights: Weights, trained: keras.Model, *, kind: PictureKind | None, gates: bool, data_dir: Path | None
) -> Job:
    """Finds the pictures and checks what was asked for, before anything is written.

    Args:
        run: the finished run.
        weights: which of its weights.
        trained: the net with these.
        kind: how pictures become inputs; None goes by the data set.
        gates: whether gates are given.
        data_dir: where prepared data lies.

    Raises:
        UserError: the data cannot be read, or are others than the run's.
    """
    split: Literal["validation", "train"] = "validation" if run.record.data.counts.get("validation") else "train"
    images, _ = _examples(run, split, data_dir, parity.IMAGES)
    if images.shape[1:] != run.record.data.shape:
        raise UserError(
            f"the images of '{run.config.data}' are {images.shape[1:]}, those that {run.path} was trained on were "
            f"{run.record.data.shape}. Name the folder of the right data with --data-dir."
        )
    return Job(run, weights, trained, kind or kinds.kind_of(run.record.data.name), gates, data_dir, split, images)


def write(job: Job, folder: Path, version: int, quantised: bool) -> None:
    """Writes and measures a version.

    Args:
        job: from `prepare`.
        folder: where to; lies in the model's folder, whose name is the model's.
        version: its number.
        quantised: whether to write the int8 form too.

    Raises:
        UserError: a form does not compute what the Keras model computes.
    """
    run, labels = job.run, job.run.record.data.labels
    fitted = preprocess.load(run.path / "preprocess.npz")
    model = graph.in_float32(job.trained)
    predict = graph.prediction(model, fitted, labels, job.gates)
    convert = kinds.converter(job.kind, run.record.data.shape)
    artefacts.write_saved_model(folder, predict, graph.prediction_of_files(predict, convert))
    artefacts.write_onnx(folder, predict)
    artefacts.write_picture(folder, convert)
    (folder / manifest.LABELS).write_text("".join(f"{label}\n" for label in labels), "utf-8")
    kept, gates = reference.refer(model, fitted, job.images, convert=convert, kind=job.kind, gates=job.gates)
    reference.save(kept, folder)
    warmup.write_warmup(folder, folder.resolve().parent.name, job.images, kept.files(job.kind))
    precision = None
    if _is_mixed(job.trained):
        narrow = reference.keras_probabilities(job.trained, fitted, job.images)
        precision = parity.of_precision(kept, narrow, labels)
    written = record.Written(
        pictures=job.kind,
        gates=gates if job.gates else None,
        parity=parity.measure(folder, kept, split=job.split, labels=labels, kind=job.kind, precision=precision),
        int8=_int8(job, folder) if quantised else None,
    )
    content = record.describe(run, job.weights, version, folder, written)
    write_text(folder / manifest.NAME, content.model_dump_json(indent=2) + "\n")


def _int8(job: Job, folder: Path) -> manifest.Int8:
    calibration, _ = _examples(job.run, "train", job.data_dir, CALIBRATION)
    int8.write_int8(folder, calibration)
    images, labels = _examples(job.run, job.split, job.data_dir, JUDGED)
    return int8.measure(folder, len(calibration), job.split, images, labels)


def _examples(
    run: Run, split: Literal["validation", "train"], data_dir: Path | None, count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Pictures from all over a split, with their classes."""
    found = sources.load(run.config.data, split, data_dir, run.config.validation, run.config.subset)
    if isinstance(found, sources.Examples):
        images, labels = found.images, found.labels
    else:
        # Data too large for memory come in batches, in an order that TFDS has shuffled; the first are sample enough.
        images, labels = found.first(count)
    chosen = np.linspace(0, len(images) - 1, min(count, len(images))).astype(int)
    return images[chosen], labels[chosen]


def _is_mixed(model: keras.Model) -> bool:
    # The policy of the model itself is lost when it is loaded from a file; that of its layers is kept.
    return any(layer.compute_dtype != "float32" for layer in model.layers)
