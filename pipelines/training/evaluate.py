"""Evaluates a run on the test split, which training never sees, or on other data."""

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from rich.console import Console

from pipelines.core import frameworks
from pipelines.core.console import printable, say
from pipelines.core.errors import UserError
from pipelines.core.files import check_writable, write_text
from pipelines.core.run import Run, Weights, load_model, model_file, open_run
from pipelines.data.roots import data_name
from pipelines.training import evaluation, multi_label
from pipelines.training.evaluation import AnyEvaluation

if TYPE_CHECKING:
    from pipelines.data.sources import Examples
    from pipelines.data.stream import Stream

FILE = "evaluation.json"
# Path or URL of the other data in a folder.
SOURCE = "data.txt"
# Images in the figure of errors, and names of classes in a message.
ERRORS, SHOWN = 20, 5


def evaluate(
    path: Path,
    weights: Weights = "final",
    data_dir: Path | None = None,
    *,
    mirror: bool = False,
    data: str | None = None,
    console: Console | None = None,
) -> AnyEvaluation:
    """Evaluates a run on the test split, or on other data, and writes figures and, last, evaluation.json.

    Args:
        path: the run directory.
        weights: "final" or "best".
        data_dir: folder of prepared data; None for the TFDS default.
        mirror: whether to measure the accuracy of logits averaged over each image and its mirror image too; for one
            class an image.
        data: other data of the same classes, by TFDS name or path: their test split; without one, all of the user's own
            images, or the training split of a prepared data set. None evaluates the run's own test split, and writes
            report.md too. All rows of a table are used.
        console: where to print progress; None prints that of preparing other data to standard error.

    Returns:
        The metrics: a `Regression` if the data have no classes, a `MultiLabel` if an example may have several.

    Raises:
        UserError: the folder is read-only, the run lacks these weights, its data have no images to mirror, a file is
            damaged, or the data has no test split or another version; or other data have other classes, or images of
            another size.

    Example:
        evaluate(Path("runs/demo")).accuracy
    """
    run = open_run(path)
    model_file(run, weights, data_dir)
    labels = run.record.data.labels
    notes = console or Console(stderr=True)
    # What can be refused is refused before TensorFlow is loaded.
    if mirror:
        _refuse_mirror(run)
    to = folder(path, data)
    check_writable(to)
    rows = _other_rows(run, data, notes) if data is not None and run.record.data.columns else None
    frameworks.load(console=console)
    from pipelines.data import batches, preprocess
    from pipelines.training import figures, report

    model = load_model(run, weights)
    fitted = preprocess.load(run.path / "preprocess.npz")
    found = _own(run, data_dir, notes) if data is None else _other(run, data, rows, data_dir, notes)
    dataset = batches.evaluation(found.examples, fitted, batch_size=run.config.batch_size, classes=len(labels))
    outputs = preprocess.in_units(fitted, model.predict(dataset, verbose=0))
    truth = found.examples.labels
    (to / "figures").mkdir(parents=True, exist_ok=True)
    if data is not None:
        write_text(to / SOURCE, _place(data))
    if not labels:
        mean = _training_mean(run, data_dir, notes)
        measured = evaluation.measure_regression(outputs, truth, mean, weights, found.name)
        measured = measured.model_copy(update={"split": found.split})
        if run.record.data.columns:
            figures.draw_values(to / "figures" / "values.png", run, measured, outputs, truth)
        else:
            figures.draw_forecast(run, measured, outputs, truth)
        if data is None:
            report.write(run, measured)
        write_text(to / FILE, measured.model_dump_json(indent=2) + "\n")
        return measured
    result: AnyEvaluation
    if run.record.data.multi_label:
        measured_labels = multi_label.measure(outputs, truth, labels, weights, found.name)
        result = measured_labels.model_copy(update={"split": found.split})
    else:
        accuracy = evaluation.measure(outputs, truth, labels, weights, found.name)
        update: dict[str, Any] = {"split": found.split}
        if mirror:
            both = outputs + model.predict(dataset.map(lambda images, labels: (images[:, :, ::-1], labels)), verbose=0)
            update["mirrored"] = float((both.argmax(axis=1) == truth).mean())
        result = accuracy.model_copy(update=update)
        figures.draw_confusion(to / "figures" / "confusion.png", run.config.recipe, result)
    _draw_errors(to / "figures" / "errors.png", found.examples, outputs, labels)
    if data is None:
        report.write(run, result)
    write_text(to / FILE, result.model_dump_json(indent=2) + "\n")
    return result


def folder(path: Path, data: str | None) -> Path:
    """Returns where `evaluate` writes: the run directory, or a folder in it for other data, each with one of its own.

    Args:
        path: the run directory.
        data: the other data; None for the run's own.
    """
    if data is None:
        return path
    place = _place(data)
    # "." and ".." have the names of these folders; a link keeps its own.
    named = Path(data) if Path(data).name.strip(".") else Path(data).resolve()
    first = found = path / "evaluations" / re.sub(r"\W+", "_", named.name)
    for number in itertools.count(2):
        if not (found / SOURCE).is_file() or (found / SOURCE).read_text("utf-8") == place:
            break
        found = first.with_name(f"{first.name}_{number}")
    return found


def _place(data: str) -> str:
    path = Path(data).expanduser()
    return printable(str(path.absolute())) if path.exists() else data


class _Rows(NamedTuple):
    """Rows of another table."""

    features: np.ndarray
    targets: np.ndarray


class _Found(NamedTuple):
    """Examples to evaluate on."""

    examples: "Examples | Stream"
    name: str
    """Name and version of the data."""
    split: str


def _own(run: Run, data_dir: Path | None, console: Console) -> _Found:
    from pipelines.data import sources
    from pipelines.data.own import prepare as own

    config, record = run.config, run.record.data
    own.restore(config, console)
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    if (info.version, info.labels, info.shape) != (record.version, record.labels, record.shape):
        raise UserError(
            f"{run.path} was trained on {record.name} {record.version}, but the data found is {info.name} "
            f"{info.version}. Point --data-dir at the former."
        )
    examples = sources.load(config.data, "test", data_dir, config.validation, config.subset)
    return _Found(examples, f"{record.name} {record.version}", "test")


def _refuse_mirror(run: Run) -> None:
    if len(run.record.data.shape) == 1:
        raise UserError(f"--mirror is for images. {run.path} was trained on vectors.")
    if run.record.data.multi_label:
        raise UserError(f"--mirror is for one class an image, and {run.path} was trained on several. Leave it out.")


def _other(run: Run, data: str, rows: _Rows | None, data_dir: Path | None, console: Console) -> _Found:
    from pipelines.data import sources
    from pipelines.data.own.by_url import local

    if rows is not None:
        return _Found(sources.Examples(*rows), data_name(Path(data)), "all")
    with local(data, console) as path:
        return _other_here(run, path, data_dir, console)


def _other_here(run: Run, data: str, data_dir: Path | None, console: Console) -> _Found:
    from pipelines.data import sources
    from pipelines.data.images import conversion
    from pipelines.data.own import class_labels
    from pipelines.data.own import prepare as own
    from pipelines.data.own.item import name_of

    config, record = run.config, run.record.data
    if not record.labels:
        raise UserError(f"--data is for classifiers. {run.path} predicts a number.")
    name = data
    if is_own := own.is_own(data):
        kind = conversion.kind_of(record.name, config.image_fit)
        name = str(own.prepare_for(record.shape, kind, data, config, console))
    info = sources.describe(name, data_dir)
    if info.shape != record.shape:
        raise UserError(
            f"{run.path} takes images of {' x '.join(map(str, record.shape))}, and those of {data} have "
            f"{' x '.join(map(str, info.shape))}. A folder of image files is converted."
        )
    # Runs of earlier versions have other forms of accents.
    known, labels = [name_of(label) for label in record.labels], [name_of(label) for label in info.labels]
    unknown = [label for label in labels if label not in known]
    if unknown:
        numbers = " If these numbers stand for those names, as in a Parquet file of Hugging Face's hub, train again."
        raise UserError(
            f"{data} has classes that {run.path} was not trained on: {', '.join(unknown[:SHOWN])}. It knows: "
            f"{', '.join(record.labels[:SHOWN])}{', ...' if len(record.labels) > SHOWN else ''}."
            f"{numbers if class_labels.knows_numbers(record.labels, info.labels) else ''}"
        )
    if info.multi_label and not record.multi_label:
        raise UserError(
            f"{run.path} predicts one class for each image, and those of {data} may have several. Name data with one "
            "class for each."
        )
    split: Literal["train", "test"] = "test" if info.counts["test"] else "train"
    examples = sources.load(name, split, data_dir)
    if (info.labels, info.multi_label) != (record.labels, record.multi_label):
        if not isinstance(examples, sources.Examples):
            raise UserError(f"{data} does not fit into memory, and its classes have another order than the run's.")
        places, truth = np.array([known.index(label) for label in labels]), examples.labels
        if record.multi_label:
            given = truth if info.multi_label else np.eye(len(places), dtype=np.uint8)[truth]
            truth = np.zeros((len(given), len(known)), np.uint8)
            truth[:, places] = given
        else:
            truth = places[truth]
        examples = sources.Examples(examples.images, truth)
    return _Found(examples, f"{info.name} {info.version}", "all" if is_own and split == "train" else split)


def _other_rows(run: Run, data: str, console: Console) -> _Rows:
    from pipelines.data.own import new_rows, rows
    from pipelines.data.own.by_url import local

    record, separator = run.record.data, run.config.label_separator
    labels, target = record.labels, str(record.target)
    with local(data, console) as copy:
        path = Path(copy).expanduser()
        if not rows.matches(path):
            expected = "Expected a CSV, TSV or Parquet file"
            raise UserError(f"{run.path} was trained on a table. {expected}. Received: --data {data}.")
        found = new_rows.read(path, record.columns, target, labels, multi_label=record.multi_label, separator=separator)
    for warning in found.warnings:
        say(console, warning)
    if found.truth is None:
        raise UserError(f"{data} lacks the column {target}, with which predictions are compared. Add it.")
    known = found.known(labels)
    if not known.any():
        known_class = " that the net was trained on" if labels else ""
        raise UserError(f"{data} has no row with a {target}{known_class}. Fill in that column.")
    truth = found.truth[known]
    if labels:
        return _Rows(found.values[known], truth.astype(np.uint8 if record.multi_label else np.int64))
    return _Rows(found.values[known], truth.astype(np.float32)[:, None])


def _training_mean(run: Run, data_dir: Path | None, console: Console) -> float:
    from pipelines.data import sources
    from pipelines.data.own import prepare as own

    config = run.config
    own.restore(config, console)
    training = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    return float(training.labels.mean(dtype=float))


def _draw_errors(path: Path, examples: "Examples | Stream", logits: np.ndarray, labels: Sequence[str]) -> None:
    """Draws the misclassified images about which the net is most confident; removes the figure if all are right.

    Images that are streamed, because they do not fit into memory, are not drawn.
    """
    from pipelines.core.class_names import class_names
    from pipelines.data.figures import draw_predictions

    truth = examples.labels
    if truth.ndim == 2:
        # The probability of exactly the predicted classes.
        certain = multi_label.sigmoid(np.abs(logits)).prod(axis=1)
        predicted = (logits > 0).astype(truth.dtype)
        wrong = np.flatnonzero((predicted != truth).any(axis=1))
    else:
        shifted = logits - logits.max(axis=1, keepdims=True)
        certain = 1 / np.exp(shifted).sum(axis=1)
        predicted = logits.argmax(axis=1)
        wrong = np.flatnonzero(predicted != truth)
    chosen = wrong[np.argsort(-certain[wrong], kind="stable")][:ERRORS]
    images = examples.images
    # Rows of a table have no channels, and a stream cannot be indexed.
    if not len(chosen) or not isinstance(images, np.ndarray) or images.ndim < 4 or images.shape[-1] not in {1, 3}:
        path.unlink(missing_ok=True)
        return
    names = class_names(labels)
    right, said = ([_named(one, names) for one in found[chosen]] for found in (truth, predicted))
    heading = f"{len(chosen)} of {len(wrong):,} errors, the most certain first"
    draw_predictions(images[chosen], right, said, certain[chosen].tolist(), path, heading=heading)


def _named(found: Any, names: Sequence[str]) -> str:
    """Returns the name of a class, or the names of those that are 1."""
    if not found.ndim:
        return names[found]
    return ", ".join(names[index] for index in np.flatnonzero(found).tolist()) or "none"
