"""`highway export`: a version of a model, with its measured parity, complete or not at all."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro
from rich.console import Console
from rich.markup import escape

from pipelines import frameworks
from pipelines.arguments import parse
from pipelines.config import Frozen
from pipelines.errors import UserError
from pipelines.files import write_text
from pipelines.run import Run, Weights, load_model, model_file, open_run
from serving import manifest

if TYPE_CHECKING:
    import keras

    from pipelines.exporting.parity import Pictures


class Arguments(Frozen):
    """Writes the next version of a model: SavedModel, ONNX, labels and manifest, checked against the Keras model."""

    run: tyro.conf.Positional[Path]
    """The run directory to export."""
    to: Path | None = None
    """Folder of the model's versions; none is models/ and the name of the run directory."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch with the highest validation accuracy."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway export`.

    Raises:
        UserError: see `export`.
    """
    given = parse(Arguments, arguments, "highway export", Arguments.__doc__ or "")
    with Console(stderr=True).status(f"exporting {escape(str(given.run))}"):
        folder = export(given.run, given.to, given.weights, given.data_dir)
    sys.stdout.write(report(folder))


def export(path: Path, to: Path | None = None, weights: Weights = "final", data_dir: Path | None = None) -> Path:
    """Exports a run as the next version of a model.

    Args:
        path: the run directory.
        to: the folder of the model's versions; None is `models/` and the run directory's name.
        weights: "final" or "best".
        data_dir: where prepared data lies, for the pictures that parity is measured on; None for TFDS's own rule.

    Returns:
        The version folder.

    Raises:
        UserError: if the run is unfinished or damaged, is no image classifier, its data cannot be read, the folder
            cannot be used, or an exported form does not compute what the Keras model computes. Nothing is left then.

    Example:
        export(Path("runs/demo"))  # models/demo/1
    """
    run = open_run(path)
    if run.record.state == "running":
        raise UserError(
            f"{path} is unfinished, after {run.record.step} steps. Finish it with `highway train --resume {path}`."
        )
    if not run.record.data.labels:
        raise UserError(f"{path} predicts a number from a vector. Only classifiers of images can be exported.")
    model_file(run, weights)
    _use_tensorflow()
    from pipelines.data import preprocess
    from pipelines.exporting import artefacts, graph, parity, record, version

    trained = load_model(run, weights)
    _check_classifier(run, trained)
    fitted = preprocess.load(run.path / "preprocess.npz")
    pictures = _pictures(run, data_dir)
    model = graph.in_float32(trained)
    predict = graph.prediction(model, fitted)
    to = to or Path("models") / run.path.resolve().name
    with version.new_version(to) as (number, folder):
        artefacts.write_saved_model(folder, predict)
        artefacts.write_onnx(folder, predict)
        (folder / manifest.LABELS).write_text("".join(f"{label}\n" for label in run.record.data.labels), "utf-8")
        measured = parity.measure(folder, model, trained, fitted, pictures)
        content = record.describe(run, weights, number, folder, measured)
        write_text(folder / manifest.NAME, content.model_dump_json(indent=2) + "\n")
    return to / str(number)


def report(folder: Path) -> str:
    """A few lines on a version: what was measured, and what to do with it."""
    content = manifest.read(folder)
    measured = content.parity
    lines = [
        f"{folder}: SavedModel and ONNX of {content.model.preset}, {content.model.parameters:,} parameters, "
        f"{sum(file.size for file in content.files.values()) / 1e6:.1f} MB",
        f"parity on {measured.images} images of the {measured.split} split, largest difference of a probability "
        f"({measured.tolerance:g} is let pass):",
    ]
    forms = [("SavedModel", measured.saved_model), ("ONNX Runtime", measured.onnx)]
    if measured.precision:
        forms.append((f"trained in {content.run.precision}", measured.precision))
    width = max(len(name) for name, _ in forms)
    for name, form in forms:
        lines.append(f"  {name:<{width}}  {form.max_abs_difference:.1e}  {form.same_label} of {measured.images} labels")
    lines.append(f"next: highway predict {folder} PICTURE.png")
    return "\n".join(lines) + "\n"


def _use_tensorflow() -> None:
    # SavedModel and tf2onnx need it, whatever the run was trained on; .keras files are the same for every backend.
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "tensorflow"
    frameworks.load()
    import keras

    if keras.backend.backend() != "tensorflow":
        raise UserError(
            f"export needs Keras on TensorFlow, and this process has it on {keras.backend.backend()} already. "
            "Export in a process of its own: `highway export RUN`."
        )


def _check_classifier(run: Run, model: "keras.Model") -> None:
    data = run.record.data
    if model.input_shape[1:] != data.shape or model.output_shape[1:] != (len(data.labels),):
        raise UserError(
            f"the net of {run.path} maps {model.input_shape[1:]} to {model.output_shape[1:]}. Expected images "
            f"{data.shape} and one output for each of the {len(data.labels)} labels: only classifiers can be exported."
        )
    if data.shape[2] not in {1, 3}:
        raise UserError(f"images of {data.shape[2]} channels cannot be exported. Expected 1 (grey) or 3 (RGB).")


def _pictures(run: Run, data_dir: Path | None) -> "Pictures":
    """Pictures from all over the validation split, or the training split where there is no other; never from test."""
    import numpy as np

    from pipelines.data import sources
    from pipelines.exporting.parity import IMAGES, Pictures

    split: Literal["validation", "train"] = "validation" if run.record.data.counts.get("validation") else "train"
    found = sources.load(run.config.data, split, data_dir, run.config.validation).images
    # Data too large for memory comes in batches, in an order that TFDS has shuffled; the first is sample enough.
    images = found if isinstance(found, np.ndarray) else next(found)
    if images.shape[1:] != run.record.data.shape:
        raise UserError(
            f"the images of '{run.config.data}' are {images.shape[1:]}, those that {run.path} was trained on were "
            f"{run.record.data.shape}. Name the folder of the right data with --data-dir."
        )
    return Pictures(split, images[np.linspace(0, len(images) - 1, min(IMAGES, len(images))).astype(int)])
