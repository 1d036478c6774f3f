"""report.md: one-page report of a run."""

from collections.abc import Mapping

from pipelines.core.console import shown_loss
from pipelines.core.files import write_text
from pipelines.core.markdown import table
from pipelines.core.run import Pruned, Run, Start
from pipelines.training import evaluation
from pipelines.training.evaluation import AnyEvaluation, Evaluation, Regression
from pipelines.training.metrics_file import plain_loss_in
from pipelines.training.multi_label import MultiLabel

FIGURES = {
    "learning_curve.png": "Learning curves over steps",
    "gates.png": "Mean transform gate of each layer, before, after and during training",
    "confusion.png": "Confusion of the test split",
    "errors.png": "Misclassified test images, the most confident first",
    "forecast.png": "Predictions and targets of the test split",
    "values.png": "Predictions and true values of the test split",
    "predictions.png": "Test images with their predicted classes",
    "pruning.png": "Scores while more and more layers were closed; the line marks the net of this run",
}


def write(run: Run, result: AnyEvaluation | None = None) -> None:
    """Writes report.md from the content of the run directory.

    Args:
        run: a finished run, evaluated or not.
        result: its evaluation on the test split; None reads that in the run directory, if there is one.
    """
    write_text(run.path / "report.md", text(run, result))


def text(run: Run, result: AnyEvaluation | None = None) -> str:
    """Returns the report as Markdown; see `write`."""
    config, record, machine = run.config, run.record, run.record.machine
    data = record.data
    counts = ", ".join(f"{count:,} {split}" for split, count in data.counts.items() if count)
    commit = f"{record.code.commit}{' with changes' if record.code.dirty else ''}" if record.code else "not a checkout"
    versions = ", ".join(f"{name} {version}" for name, version in record.versions.items())
    task = f"{len(data.labels)} classes" if data.labels else "a number to predict from features"
    if data.multi_label:
        task += ", any number of them for each example"
    if data.target:
        task = f"{data.target} ({task})"
    epochs = record.step // record.steps_per_epoch
    of = "" if epochs == config.epochs else f" of {config.epochs}"
    made = [
        ("command", f"`{record.command}`"),
        ("recipe", config.recipe),
        ("net", f"{config.model.preset}, {record.parameters:,} parameters"),
        ("data", f"{data.name} {data.version}: {counts}; {task}, {'x'.join(map(str, data.shape))}"),
        ("steps", f"{record.step:,} of {config.batch_size} examples ({epochs}{of} epochs), seed {config.seed}"),
        ("time", f"{record.seconds:.0f} s ({record.created}), validation included"),
        ("precision", f"{record.precision.policy}: {record.precision.reason}"),
        ("machine", f"{machine.cpu}, {machine.cores} cores, {' '.join(machine.cpu_features)}"),
        ("accelerators", ", ".join(machine.accelerators) or "none"),
        *([("devices", "; ".join(map(_start, record.starts)))] if record.starts else []),
        *([("pruned", _pruned(record.pruned))] if record.pruned else []),
        ("versions", f"{versions}; backend {record.backend}"),
        ("commit", commit),
    ]
    steps = "every epoch in [metrics.csv](metrics.csv)"
    explained = _explained(run)
    if record.pruned:
        steps = "every round in [pruning.csv](pruning.csv)"
        explained = f"The layers were chosen on these {record.pruned.split} examples; the test split had no part in it."
    parts = [
        f"# {config.recipe}: {'pruned' if record.pruned else record.state}",
        _measured(run, result or evaluation.of_run(run)),
        explained,
        "## How it was made",
        table(("", ""), made),
        f"Every setting of training is in [config.json](config.json), {steps}.",
    ]
    for name, caption in FIGURES.items():
        if (run.path / "figures" / name).exists():
            parts += [f"## {caption}", f"![{caption}](figures/{name})"]
    return "\n\n".join(parts) + "\n"


def _explained(run: Run) -> str:
    """Says how losses and metrics of training differ from those of an evaluation."""
    config = run.config
    added = f"the weight penalty{' and label smoothing' if config.label_smoothing else ''}"
    weights = "; that of training also weighs the classes" if config.class_weights == "balanced" else ""
    losses = f"The loss of training and validation includes {added}{weights}"
    if (plain := plain_loss_in(run.record.metrics)) != "loss":
        losses = f"Losses exclude {added}: they are `{plain}` in metrics.csv, not `loss`"
    return f"{losses}; training metrics are means over the epoch, with dropout and augmentation."


def _measured(run: Run, result: AnyEvaluation | None) -> str:
    data = run.record.data
    if data.multi_label:
        return table(("measured on", "macro F1", "loss"), _multi_label(run, result))
    if data.labels:
        return table(("measured on", "accuracy", "loss"), _results(run, result))
    return table(("measured on", "mean absolute error", "loss"), _regression(run, result))


def _pruned(pruned: Pruned) -> str:
    left = pruned.layers - len(pruned.removed)
    return f"{left} of the {pruned.layers} highway layers of {pruned.source}; without {', '.join(pruned.removed)}"


def _start(start: Start) -> str:
    processes = f" of {start.processes} processes" if start.processes > 1 else ""
    return f"{start.devices}{processes} from step {start.step:,}"


def _results(run: Run, result: AnyEvaluation | None) -> list[tuple[str, str, str]]:
    rows = []
    if isinstance(result, Evaluation):
        low, high = result.interval
        examples = f"{result.count:,} {'rows' if run.record.data.columns else 'images'}"
        rows.append(
            (
                f"test split, {examples}, {result.weights} weights",
                f"**{result.accuracy:.2%}** (95% interval {low:.2%} to {high:.2%})",
                shown_loss(result.loss, regression=False),
            )
        )
        if result.calibration_error is not None:
            rows.append(("the same: expected calibration error", f"{result.calibration_error:.2%}", ""))
        if result.mirrored is not None:
            rows.append(("the same, averaged with mirror images", f"{result.mirrored:.2%}", ""))
    return rows + _training(run, "accuracy", ".2%")


def _multi_label(run: Run, result: AnyEvaluation | None) -> list[tuple[str, str, str]]:
    rows = []
    if isinstance(result, MultiLabel):
        examples = f"{result.count:,} {'rows' if run.record.data.columns else 'images'}"
        means = f"mean average precision **{result.mean_average_precision:.2%}**"
        name = f"test split, {examples}, {result.weights} weights: {means}"
        rows.append((name, f"{result.macro_f1:.3f}", shown_loss(result.loss, regression=False)))
        right = f"{result.label_accuracy:.2%} of the labels are right, all of an example for {result.exact:.2%}"
        rows.append((f"the same: {right}; expected calibration error {result.calibration_error:.2%}", "", ""))
    return rows + _training(run, "f1", ".3f")


def _regression(run: Run, result: AnyEvaluation | None) -> list[tuple[str, str, str]]:
    rows = []
    if isinstance(result, Regression):
        name = f"test split, {result.count:,} examples, {result.weights} weights"
        r2 = f"R² **{result.shown_r2()}**"
        rows.append((f"{name}: {r2}", f"{result.mae:.4g}", shown_loss(result.loss, regression=True)))
    # Targets of a table are standardized in training.
    return rows + _training(run, "mae", ".4g", ", in standard deviations" if run.record.data.columns else "")


def _training(run: Run, score: str, style: str, unit: str = "") -> list[tuple[str, str, str]]:
    """Returns the rows of the last epoch and the best one, or of a pruned net, by a score and its format."""
    metrics, rows = run.record.metrics, []
    plain = plain_loss_in(metrics)

    def loss(scores: Mapping[str, float], name: str = "loss") -> str:
        return shown_loss(scores[name], regression=not run.record.data.labels)

    if pruned := run.record.pruned:
        where = f"{pruned.split}, {pruned.examples:,} examples"
        for name, scores in ((f"{where}, whole net", pruned.before), (f"{where}, pruned", pruned.after)):
            rows.append((name, format(scores[score], style) if score in scores else "", loss(scores)))
    for prefix, name in (("val_", "validation, last epoch"), ("", "training, last epoch")):
        if f"{prefix}{score}" in metrics:
            last = format(metrics[f"{prefix}{score}"], style)
            rows.append((f"{name}{unit}", last, loss(metrics, f"{prefix}{plain}")))
    if "best_epoch" in metrics:
        best = f"best_val_{score}"
        # Without an accuracy, the best epoch is that of the lowest loss.
        found = (format(metrics[best], style), "") if best in metrics else ("", loss(metrics, f"best_val_{plain}"))
        rows.append((f"validation, best epoch ({metrics['best_epoch']:.0f}){unit}", *found))
    return rows
