"""Evaluates a run on the test split, which training never sees."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pipelines.core import frameworks
from pipelines.core.errors import UserError
from pipelines.core.files import write_text
from pipelines.core.run import Weights, load_model, model_file, open_run
from pipelines.training import evaluation
from pipelines.training.evaluation import Evaluation, Regression

if TYPE_CHECKING:
    from pipelines.data.sources import Examples
    from pipelines.data.stream import Stream

# Images in the figure of errors.
ERRORS = 20


def evaluate(
    path: Path, weights: Weights = "final", data_dir: Path | None = None, *, mirror: bool = False
) -> Evaluation | Regression:
    """Evaluates a run on the test split and writes evaluation.json, report.md and figures.

    Args:
        path: the run directory.
        weights: "final" or "best".
        data_dir: folder of prepared data; None for the TFDS default.
        mirror: whether to measure the accuracy of logits averaged over each image and its mirror image too.

    Returns:
        The metrics: a `Regression` if the data have no classes.

    Raises:
        UserError: the run lacks these weights, its data have no images to mirror, a file is damaged, or the data has no
            test split or another version.

    Example:
        evaluate(Path("runs/demo")).accuracy
    """
    run = open_run(path)
    model_file(run, weights)
    frameworks.load()
    from pipelines.data import batches, preprocess, sources
    from pipelines.training import figures, report

    model = load_model(run, weights)
    fitted = preprocess.load(run.path / "preprocess.npz")
    config, record = run.config, run.record.data
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    if (info.version, info.labels, info.shape) != (record.version, record.labels, record.shape):
        raise UserError(
            f"{path} was trained on {record.name} {record.version}, and the data found is {info.name} "
            f"{info.version}. Point --data-dir at the former."
        )
    examples = sources.load(config.data, "test", data_dir, config.validation, config.subset)
    dataset = batches.evaluation(examples, fitted, batch_size=config.batch_size, classes=len(record.labels))
    if mirror and not record.labels:
        raise UserError(f"--mirror is for images. {path} was trained on vectors.")
    outputs = model.predict(dataset, verbose=0)
    name = f"{record.name} {record.version}"
    result: Evaluation | Regression
    if record.labels:
        result = evaluation.evaluate(outputs, examples.labels, record.labels, weights, name)
        if mirror:
            both = outputs + model.predict(dataset.map(lambda images, labels: (images[:, :, ::-1], labels)), verbose=0)
            result = result.model_copy(update={"mirrored": float((both.argmax(axis=1) == examples.labels).mean())})
    else:
        training = sources.load(config.data, "train", data_dir, config.validation, config.subset)
        mean = float(training.labels.mean(dtype=float))
        result = evaluation.measure_regression(outputs, examples.labels, mean, weights, name)
    write_text(run.path / "evaluation.json", result.model_dump_json(indent=2) + "\n")
    if isinstance(result, Regression):
        figures.draw_forecast(run, result, outputs, examples.labels)
    else:
        figures.draw_confusion(run, result)
        _draw_errors(run.path / "figures" / "errors.png", examples, outputs, record.labels)
    report.write(run)
    return result


def _draw_errors(path: Path, examples: "Examples | Stream", logits: np.ndarray, labels: Sequence[str]) -> None:
    """Draws the misclassified images of which the net is most confident; removes the figure if all are right.

    Images that are streamed, because they do not fit into memory, are not drawn.
    """
    from pipelines.data.figures import draw_predictions

    shifted = logits - logits.max(axis=1, keepdims=True)
    certain = 1 / np.exp(shifted).sum(axis=1)
    predicted, truth = logits.argmax(axis=1), examples.labels
    wrong = np.flatnonzero(predicted != truth)
    chosen = wrong[np.argsort(-certain[wrong], kind="stable")][:ERRORS]
    if not len(chosen) or not isinstance(images := examples.images, np.ndarray) or images.shape[-1] not in {1, 3}:
        path.unlink(missing_ok=True)
        return
    right, said = ([labels[index] for index in found[chosen]] for found in (truth, predicted))
    heading = f"{len(chosen)} of {len(wrong):,} errors, the most certain first"
    draw_predictions(images[chosen], right, said, certain[chosen].tolist(), path, heading=heading)
