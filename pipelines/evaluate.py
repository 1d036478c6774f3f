"""`highway evaluate`: measures a run on the test split, which nothing else reads."""

from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from pipelines import evaluation, frameworks, regression
from pipelines.arguments import parse
from pipelines.config import Frozen
from pipelines.errors import UserError
from pipelines.evaluation import Evaluation
from pipelines.files import write_text
from pipelines.regression import Regression
from pipelines.run import Weights, load_model, model_file, open_run


class Arguments(Frozen):
    """Measures a run on the test split: accuracy, loss and each class; of a regression, errors and R^2."""

    run: tyro.conf.Positional[Path]
    """The run directory."""
    weights: Weights = "final"
    """Weights after the last step, or of the epoch that did best on validation."""
    data_dir: Path | None = None
    """Folder of prepared TFDS data sets; none is TFDS_DATA_DIR, then ~/tensorflow_datasets."""


def main(arguments: list[str]) -> None:
    """Runs the verb.

    Args:
        arguments: the words after `highway evaluate`.

    Raises:
        UserError: see `evaluate`.
    """
    given = parse(Arguments, arguments, "highway evaluate", Arguments.__doc__ or "")
    console = Console()
    result = evaluate(given.run, given.weights, given.data_dir)
    console.print(table(result))
    figure = "forecast.png" if isinstance(result, Regression) else "confusion.png"
    # Only classifiers of images can be exported.
    then = "" if isinstance(result, Regression) else f"\nnext: highway export {given.run}"
    console.print(
        f"written: {given.run / 'evaluation.json'}, {given.run / 'figures' / figure}, {given.run / 'report.md'}{then}",
        highlight=False,
        soft_wrap=True,
    )


def evaluate(path: Path, weights: Weights = "final", data_dir: Path | None = None) -> Evaluation | Regression:
    """Measures a run on the test split and writes evaluation.json, report.md and a figure (confusion or forecast).

    Args:
        path: the run directory.
        weights: "final" or "best".
        data_dir: where prepared data lies; None for the default of TFDS.

    Returns:
        What was measured: a `Regression` if the data have no classes.

    Raises:
        UserError: if the run has no such net, its files are damaged, or the data has no test split or is another.

    Example:
        evaluate(Path("runs/demo")).accuracy
    """
    run = open_run(path)
    model_file(run, weights)
    frameworks.load()
    from pipelines import figures, report
    from pipelines.data import batches, preprocess, sources

    model = load_model(run, weights)
    fitted = preprocess.load(run.path / "preprocess.npz")
    config, record = run.config, run.record.data
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    if (info.version, info.labels, info.shape) != (record.version, record.labels, record.shape):
        raise UserError(
            f"the data is not what {path} was trained on: {info.name} {info.version}, and it was "
            f"{record.name} {record.version}. Point --data-dir at the first."
        )
    examples = sources.load(config.data, "test", data_dir, config.validation, config.subset)
    dataset = batches.evaluation(examples, fitted, batch_size=config.batch_size, classes=len(record.labels))
    outputs = model.predict(dataset, verbose=0)
    name = f"{record.name} {record.version}"
    result: Evaluation | Regression
    if record.labels:
        result = evaluation.evaluate(outputs, examples.labels, record.labels, weights, name)
    else:
        training = sources.load(config.data, "train", data_dir, config.validation, config.subset)
        mean = float(training.labels.mean(dtype=float))
        result = regression.measure(outputs, examples.labels, mean, weights, name)
    write_text(run.path / "evaluation.json", result.model_dump_json(indent=2) + "\n")
    if isinstance(result, Regression):
        figures.draw_forecast(run, result, outputs, examples.labels)
    else:
        figures.draw_confusion(run, result)
    report.write(run)
    return result


def table(result: Evaluation | Regression) -> Table:
    """The result as a table: all, then the classes, of many classes the five worst; or the errors of a regression."""
    shown = Table(title=f"{result.data}, {result.split} split, {result.weights} weights", title_justify="left")
    if isinstance(result, Regression):
        for name in ("examples", "RMSE", "mean absolute error", "R^2"):
            shown.add_column(name, justify="right")
        shown.add_row(f"{result.count:,}", f"{result.rmse:.4g}", f"{result.mae:.4g}", f"{result.r2:.4f}")
        shown.caption = f"R^2 against the mean of training, {result.training_mean:.4g}"
        return shown
    low, high = result.interval
    for name in ("class", "images", "correct", "accuracy", "95 % interval"):
        shown.add_column(name, justify="left" if name == "class" else "right")
    shown.add_row(
        "all", f"{result.count:,}", f"{result.correct:,}", f"{result.accuracy:.2%}", f"{low:.2%} to {high:.2%}"
    )
    shown.add_section()
    many = len(result.classes) > 20
    classes = sorted(result.classes, key=lambda item: item.accuracy)[:5] if many else result.classes
    for item in classes:
        ends = "{:.2%} to {:.2%}".format(*evaluation.interval(item.correct, item.count)) if item.count else ""
        shown.add_row(item.label, f"{item.count:,}", f"{item.correct:,}", f"{item.accuracy:.2%}", ends)
    shown.caption = f"cross-entropy {result.loss:.4f}" + ("; the five worst of all classes" if many else "")
    return shown
