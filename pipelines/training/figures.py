"""The figures of a run, drawn from the content of its folder."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from pipelines.core.class_names import class_names, text_width
from pipelines.core.plotting import BLUE, GREY, MAX_MARKERS, ORANGE, loss_axis, saved, whole_ticks
from pipelines.core.run import Run
from pipelines.training.evaluation import Evaluation, Regression
from pipelines.training.metrics_file import Row, read

# Columns of text of a name in a title.
LONG = 40


def draw_training(run: Run) -> None:
    """Draws figures/learning_curve.png and, if the net has gates, figures/gates.png.

    Args:
        run: a run; nothing is drawn before its first epoch is done.
    """
    rows = read(run.path / "metrics.csv")
    if not rows:
        return
    name = run.config.recipe
    with saved(run.path / "figures" / "learning_curve.png", (10, 4.2)) as figure:
        learning_curve(figure, rows, f"{name} on {run.record.data.name}")
    if run.record.gates:
        with saved(run.path / "figures" / "gates.png", (10, 4.6)) as figure:
            gates(figure, rows, run.record.gates, f"{name}: mean transform gate")


def draw_confusion(path: Path, recipe: str, result: Evaluation) -> None:
    """Draws the confusion matrix.

    Args:
        path: the figure to write.
        recipe: name of the recipe, for the title.
        result: the evaluation.
    """
    side = 6.4 if len(result.classes) <= 20 else 8.0
    with saved(path, (side + 0.6, side)) as figure:
        confusion(figure, result, f"{recipe} on {result.data}, {result.split}")


def draw_forecast(run: Run, result: Regression, predicted: np.ndarray, targets: np.ndarray) -> None:
    """Draws figures/forecast.png.

    Args:
        run: the run.
        result: its evaluation.
        predicted: float [n, 1].
        targets: float [n, 1].
    """
    with saved(run.path / "figures" / "forecast.png", (11, 4.4)) as figure:
        forecast(figure, result, predicted[:, 0], targets[:, 0], f"{run.config.recipe} on {result.data}, test")


def draw_values(path: Path, run: Run, result: Regression, predicted: np.ndarray, targets: np.ndarray) -> None:
    """Draws the predictions for rows of a table, whose order has no meaning.

    Args:
        path: the figure to write.
        run: the run.
        result: its evaluation.
        predicted: float [n, 1].
        targets: float [n, 1].
    """
    (target,) = class_names([str(run.record.data.target)], LONG)
    title = f"{run.config.recipe} on {result.data}, {result.split}"
    with saved(path, (6.4, 6.0)) as figure:
        values(figure, result, predicted[:, 0], targets[:, 0], f"{target}: {title}")


def learning_curve(figure: Figure, rows: Sequence[Row], title: str) -> None:
    """Draws loss and accuracy, macro F1 or mean absolute error, over steps, in training and validation.

    Args:
        figure: an empty figure.
        rows: rows of metrics.csv.
        title: title of the figure.
    """
    steps = [row["step"] for row in rows]
    marker = "o" if len(rows) <= MAX_MARKERS else None
    names = {"loss": "loss", "accuracy": "accuracy", "f1": "macro F1", "mae": "mean absolute error"}
    metrics = [name for name in names if name in rows[0]]
    for axes, metric in zip(figure.subplots(1, 2), metrics, strict=True):
        axes.plot(steps, [row[metric] for row in rows], color=BLUE, marker=marker, ms=4, label="training")
        if f"val_{metric}" in rows[0]:
            values = [row[f"val_{metric}"] for row in rows]
            axes.plot(steps, values, color=ORANGE, marker=marker, ms=4, ls="--", label="validation")
        axes.set_xlabel("step")
        axes.set_title(names[metric])
        axes.set_xlim(left=0)
        whole_ticks(axes.xaxis, 6)
        axes.legend()
        if metric == "accuracy":
            axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        elif metric == "f1":
            axes.set_ylim(0, 1)
        else:
            loss_axis(axes)
    figure.suptitle(title)


def gates(figure: Figure, rows: Sequence[Row], before: dict[str, float], title: str) -> None:
    """Draws the mean gate of each layer before, after and during training.

    Args:
        figure: an empty figure.
        rows: rows of metrics.csv.
        before: the mean gates before training, by layer.
        title: title of the figure.
    """
    layers = list(before)
    history = np.array([[row[f"gate/{layer}"] for layer in layers] for row in rows])
    steps = np.array([0, *(row["step"] for row in rows)])
    numbers = np.arange(1, len(layers) + 1)
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    # Gates that start nearly closed may end orders of magnitude higher; hundreds of layers need points, not a line.
    first = np.array(list(before.values()))
    logarithmic = history[-1].max() > 20 * first.min() > 0
    after = {"ls": "none", "marker": ".", "ms": 3} if len(layers) > MAX_MARKERS else {"marker": "o", "ms": 4}
    left.plot(numbers, first, color=GREY, ls="--", label="before training")
    left.plot(numbers, history[-1], color=BLUE, **after, label=f"after {steps[-1]:,.0f} steps")
    if logarithmic:
        left.set_yscale("log")
        left.set_ylim(top=4 * history[-1].max())
    else:
        left.set_ylim(0, 1.12 * max(history[-1].max(), first.max()))
    left.set_xlabel("highway layer, from the input")
    left.set_ylabel("mean of T (0: layer carries its input)")
    whole_ticks(left.xaxis, 10)
    left.legend(loc="best" if len(layers) <= MAX_MARKERS else "upper left")
    # An epoch's column spans the steps since the epoch before.
    norm = "log" if logarithmic and history.min() > 0 else "linear"
    mesh = right.pcolormesh(steps, np.append(numbers, numbers[-1] + 1) - 0.5, history.T, cmap="viridis", norm=norm)
    right.grid(visible=False)
    right.set_xlabel("step")
    right.set_ylabel("highway layer, from the input")
    whole_ticks(right.xaxis, 6)
    whole_ticks(right.yaxis, 10)
    figure.colorbar(mesh, ax=right, label="mean of T")
    figure.suptitle(title)


def confusion(figure: Figure, result: Evaluation, title: str) -> None:
    """Draws the confusion matrix.

    Rows are shares of the true class; names and counts are shown for up to 20 classes.

    Args:
        figure: an empty figure.
        result: the evaluation.
        title: title of the figure.
    """
    counts = np.array(result.confusion)
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    axes = figure.subplots()
    axes.grid(visible=False)
    # Errors are rare; a square-root scale makes them visible next to the diagonal.
    image = axes.imshow(shares, cmap="Blues", norm=mpl.colors.PowerNorm(0.5, 0, 1))
    axes.set_xlabel("predicted class")
    axes.set_ylabel("true class")
    if len(counts) <= 20:
        names = class_names([item.label for item in result.classes])
        long = max(map(text_width, names)) > 3
        axes.set_xticks(range(len(names)), names, rotation=45 if long else 0, ha="right" if long else "center")
        axes.set_yticks(range(len(names)), names)
        for (row, column), count in np.ndenumerate(counts):
            if count:
                color = "white" if shares[row, column] > 0.4 else "black"
                axes.text(column, row, f"{count}", ha="center", va="center", fontsize=9, color=color)
    bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label="share of the true class")
    bar.set_ticks([0, 0.01, 0.05, 0.1, 0.25, 0.5, 1], labels=["0%", "1%", "5%", "10%", "25%", "50%", "100%"])
    axes.set_title(f"{title}\n{result.accuracy:.2%} of {result.count:,} correct")


def forecast(figure: Figure, result: Regression, predicted: np.ndarray, targets: np.ndarray, title: str) -> None:
    """Draws predictions and targets over the test split and against each other.

    Args:
        figure: an empty figure.
        result: the evaluation.
        predicted: float [n].
        targets: float [n].
        title: title above both plots.
    """
    left, right = figure.subplots(1, 2, width_ratios=(1.7, 1))
    mean = {"color": "black", "ls": ":", "lw": 1.2, "label": "training mean"}
    left.plot(targets, color=GREY, lw=1, label="target")
    left.plot(predicted, color=ORANGE, lw=1.6, label="prediction")
    left.axhline(result.training_mean, **mean)
    left.set_xlabel("test example, in the order of the data")
    left.margins(x=0.01)
    right.scatter(predicted, targets, s=14, color=BLUE, alpha=0.6, lw=0)
    right.axline((result.training_mean, result.training_mean), slope=1, color=GREY, lw=1, label="target = prediction")
    right.axvline(result.training_mean, **mean)
    right.set_aspect("equal", adjustable="datalim")
    right.set_xlabel("prediction")
    right.set_ylabel("target")
    for axes in (left, right):
        axes.legend(fontsize=9)
    figure.suptitle(f"{title}\nR\u00b2 {result.shown_r2(3)}, {result.count:,} examples")


def values(figure: Figure, result: Regression, predicted: np.ndarray, targets: np.ndarray, title: str) -> None:
    """Draws predictions against true values.

    Args:
        figure: an empty figure.
        result: the evaluation.
        predicted: float [n].
        targets: float [n].
        title: title of the figure.
    """
    axes = figure.subplots()
    low, high = float(min(predicted.min(), targets.min())), float(max(predicted.max(), targets.max()))
    margin = 0.04 * (high - low)
    axes.plot([low, high], [low, high], color=GREY, lw=1, label="prediction = true value")
    axes.axhline(result.training_mean, color="black", ls=":", lw=1.2, label="training mean")
    axes.scatter(targets, predicted, s=14, color=BLUE, alpha=0.6, lw=0)
    axes.set(xlim=(low - margin, high + margin), ylim=(low - margin, high + margin), aspect="equal")
    axes.set(xlabel="true value", ylabel="prediction")
    axes.legend(fontsize=9, loc="upper left")
    scores = f"R\u00b2 {result.shown_r2(3)}, mean absolute error {result.mae:.4g}, {result.count:,} rows"
    axes.set_title(f"{title}\n{scores}", fontsize=10)
