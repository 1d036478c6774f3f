"""The pictures of a search."""

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from pipelines.figures import BLUE, GREY, saved
from pipelines.training import table
from pipelines.tuning.importance import Importance, choices, importance, positions
from pipelines.tuning.plan import Plan
from pipelines.tuning.results import winners
from pipelines.tuning.space import LOGARITHMIC, searched
from pipelines.tuning.state import State, Trial

BEST = 10
"""Trials of each net whose mean the study's picture shows, as the paper's Figure 1 does."""


def draw(folder: Path, plan: Plan, state: State) -> list[Path]:
    """Draws figures/parallel.png, importance.png, and for a study depths.png.

    Args:
        folder: of the search.
        plan: what was searched.
        state: how it went, with at least one completed trial.

    Returns:
        The files.
    """
    figures = folder / "figures"
    completed = sum(trial.score is not None for trial in state.trials)
    title = f"{plan.algorithm} search over {plan.name}, {completed} of {len(state.trials)} trials completed"
    title += f"\n{plan.label}" if plan.label else ""
    files = [figures / "parallel.png"]
    axes = len(searched(plan.space)) + 1 + bool(plan.nets)
    with saved(files[-1], (max(6.0, 1.7 * axes), 4.6)) as figure:
        parallel(figure, plan, state, title)
    measured = importance(plan, state)
    if measured:
        files.append(figures / "importance.png")
        with saved(files[-1], (7.5, 1.8 + 0.45 * len(measured.names))) as figure:
            bars(figure, measured, title)
    if plan.nets:
        files.append(figures / "depths.png")
        with saved(files[-1], (10, 4.4)) as figure:
            curves(figure, folder, plan, state, title)
    return files


def parallel(figure: Figure, plan: Plan, state: State, title: str) -> None:
    """A line for each completed trial through its hyperparameters to its score; the best lie on top.

    Args:
        figure: an empty figure.
        plan: what was searched.
        state: how it went.
        title: above it.
    """
    trials = state.ranked[::-1]
    scores = np.array([trial.score for trial in trials], float)
    names = [*(["net"] if plan.nets else []), *searched(plan.space)]
    shift = np.random.default_rng(0).uniform(-0.03, 0.03, (len(trials), len(names)))
    columns = []
    for index, name in enumerate(names):
        column, low, high = _scaled(plan, trials, name)
        share = (column - low) / (high - low or 1)
        # Trials with the same choice would hide each other.
        columns.append(share + (shift[:, index] if choices(plan, name) else 0))
    low, high = float(scores.min()), float(scores.max())
    columns.append((scores - low) / (high - low or 1))
    axes = figure.subplots()
    places = np.arange(len(columns))
    rows = np.column_stack(columns)
    # A net without gates passes by the axis of their bias.
    kept = [[name in plan.meant(trial.values) for name in names] + [True] for trial in trials]
    # By rank: a few diverged trials would take the whole scale of colours.
    ranks = np.linspace(0, 1, len(trials))
    lines = LineCollection(
        [np.column_stack([places, row])[meant] for row, meant in zip(rows, kept, strict=True)],
        colors=mpl.colormaps["viridis"](ranks),
        linewidths=np.where(np.arange(len(trials)) >= len(trials) - 3, 2.2, 0.9),
        alpha=0.8,
    )
    axes.add_collection(lines)
    axes.set_xlim(-0.3, places[-1] + 0.45)
    axes.set_ylim(-0.06, 1.06)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    for place, name in enumerate(names):
        _axis(axes, place, *_ticks(plan, trials, name))
    percent = state.objective.name == "val_accuracy"
    marks = np.linspace(0, 1, 5).tolist() if high > low else [0.0]
    _axis(axes, int(places[-1]), marks, [_number(low + mark * (high - low), percent) for mark in marks])
    axes.set_xticks(places, [*(name.replace("_", " ") for name in names), _words(state)])
    axes.tick_params(length=0)
    figure.suptitle(f"{title}; yellow is best")


def bars(figure: Figure, measured: Importance, title: str) -> None:
    """The importance of each hyperparameter, the greatest on top.

    Args:
        figure: an empty figure.
        measured: by `importance`.
        title: above it.
    """
    axes = figure.subplots()
    means, spread = measured.losses.mean(axis=1), measured.losses.std(axis=1)
    order = np.argsort(means)
    names = [measured.names[index].replace("_", " ") for index in order]
    axes.barh(names, means[order], xerr=spread[order], color=BLUE, height=0.6, error_kw={"ecolor": GREY, "lw": 1.2})
    axes.grid(visible=False, axis="y")
    axes.set_xlim(left=min(0.0, float((means - spread).min())))
    axes.set_xlabel("what shuffling it takes from the R² of a random forest")
    told = f"forest over {measured.trials} trials, failed ones as the worst; R² {measured.r2:.2f} on trials left out"
    figure.suptitle(f"{title}\n{told}", fontsize=11)


def curves(figure: Figure, folder: Path, plan: Plan, state: State, title: str) -> None:
    """Training loss over epochs of each net: of its best trial, and the mean of its ten best, as the paper's Figure 1.

    Args:
        figure: an empty figure.
        folder: of the search, with the trials' curves.
        plan: what was searched.
        state: how it went.
        title: above both.
    """
    left, right = figure.subplots(1, 2, sharey=True)
    colours = mpl.colormaps["viridis"](np.linspace(0, 0.9, -(-len(plan.nets) // 2)))
    for name in winners(plan, state):
        mine = [trial for trial in state.ranked if plan.net(trial.values) == name]
        losses = [_losses(folder, trial) for trial in mine[:BEST]]
        losses = [loss for loss in losses if loss.size]
        if not losses:
            continue
        number = [net.name for net in plan.nets].index(name)
        style = {
            "color": colours[number % len(colours)],
            "ls": "-" if number < len(colours) else "--",
            "marker": "o" if number < len(colours) else "s",
            "ms": 3,
            "label": f"{name} ({len(losses)})",
        }
        shortest = min(map(len, losses))
        epochs = np.arange(1, shortest + 1)
        left.plot(epochs, losses[0][:shortest], **style)
        right.plot(epochs, np.mean([loss[:shortest] for loss in losses], axis=0), **style)
    for axes, what in ((left, "best trial of each net"), (right, f"mean of its {BEST} best, or of as many as it has")):
        axes.set_yscale("log")
        axes.set_xlabel("epoch")
        axes.xaxis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
        axes.set_title(what)
    left.set_ylabel("training loss")
    right.legend(fontsize=8, ncols=2)
    figure.suptitle(title)


def _losses(folder: Path, trial: Trial) -> np.ndarray:
    return np.array([row["loss"] for row in table.read(folder / "trials" / trial.number / "metrics.csv")])


def _scaled(plan: Plan, trials: list[Trial], name: str) -> tuple[np.ndarray, float, float]:
    """Values on the scale of their axis, and its ends."""
    values, order = positions(plan, trials, name), choices(plan, name)
    low, high = (0.0, len(order) - 1.0) if order else map(float, searched(plan.space)[name])
    if name in LOGARITHMIC:
        return np.log10(values), float(np.log10(low)), float(np.log10(high))
    return values, low, high


def _ticks(plan: Plan, trials: list[Trial], name: str) -> tuple[list[float], list[str]]:
    order = choices(plan, name)
    if order:
        return [place / (len(order) - 1 or 1) for place in range(len(order))], [str(value) for value in order]
    _, low, high = _scaled(plan, trials, name)
    if name in LOGARITHMIC:
        marks = np.arange(np.ceil(low - 1e-9), np.floor(high + 1e-9) + 1).tolist()
        marks = marks if len(marks) > 1 else [low, high]
        return [(mark - low) / (high - low) for mark in marks], [f"{10**mark:.3g}" for mark in marks]
    return [0, 0.25, 0.5, 0.75, 1], [f"{low + share * (high - low):.3g}" for share in (0, 0.25, 0.5, 0.75, 1)]


def _axis(axes: Any, place: int, marks: list[float], texts: list[str]) -> None:
    axes.vlines(place, 0, 1, color=GREY, lw=0.8, zorder=3)
    for mark, text in zip(marks, texts, strict=True):
        box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
        axes.text(place + 0.05, mark, text, fontsize=8, va="center", ha="left", zorder=4, bbox=box)


def _number(value: float, percent: bool) -> str:
    return f"{value:.1%}" if percent else f"{value:.3g}"


def _words(state: State) -> str:
    return {"val_accuracy": "validation\naccuracy", "val_loss": "validation\nloss"}[state.objective.name]
