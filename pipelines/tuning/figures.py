"""Figures of a search."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure

from pipelines.core.config import HYPERPARAMETERS
from pipelines.core.plotting import BLUE, GREY, saved
from pipelines.tuning import settings, ticks
from pipelines.tuning.importance import Importance, importance
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import SearchState, Trial
from pipelines.tuning.space import searched

GAP = 0.2
"""Gap before and after an axis on which a line has no value, as a share of the distance between axes."""


def draw(folder: Path, plan: SearchPlan, state: SearchState) -> list[Path]:
    """Draws figures/parallel.png and importance.png.

    Args:
        folder: the folder of the search.
        plan: the plan of the search.
        state: the state of the search, with at least one completed trial.

    Returns:
        The files drawn.
    """
    figures = folder / "figures"
    completed = sum(trial.score is not None for trial in state.trials)
    title = (
        f"{plan.algorithm.capitalize()} search over {plan.name}, {completed} of {len(state.trials)} trials completed"
    )
    title += f"\n{plan.label}" if plan.label else ""
    files = [figures / "parallel.png"]
    axes = len(settings.names(plan, settings.longest(state.ranked))) + 1
    with saved(files[-1], (max(6.5, 1.6 * axes), 4.8)) as figure:
        draw_parallel(figure, plan, state, title)
    measured = importance(plan, state)
    if measured:
        files.append(figures / "importance.png")
        with saved(files[-1], (7.5, 2.4 + 0.4 * len(measured.names))) as figure:
            draw_importance(figure, measured, state, title)
    return files


def draw_parallel(figure: Figure, plan: SearchPlan, state: SearchState, title: str) -> None:
    """Draws parallel coordinates: one line per setting, from its hyperparameters to its score, the best on top.

    Args:
        figure: an empty figure.
        plan: the plan of the search.
        state: the state of the search.
        title: title of the figure.
    """
    trials = settings.longest(state.ranked)[::-1]
    names = settings.names(plan, trials)
    shares, labels = zip(*[_axis(plan, trials, name) for name in names], _scores(state, trials), strict=True)
    # Colours go by rank, with equal ranks for ties: otherwise a few bad trials would take up the whole scale.
    badness = np.array([state.objective.key(trial.score) for trial in trials if trial.score is not None])
    rank = np.unique(-badness, return_inverse=True)[1]
    lines = LineCollection(
        [_line(row) for row in np.column_stack(shares)],
        colors=mpl.colormaps["viridis"](rank / rank.max() if rank.any() else np.ones(len(rank))),
        linewidths=np.where(badness <= np.sort(badness)[:3].max(), 2.2, 0.9),
        alpha=0.8,
    )
    axes = figure.subplots()
    axes.add_collection(lines)
    axes.set_xlim(-0.15, len(labels) - 0.55)
    axes.set_ylim(-0.06, 1.06)
    axes.grid(visible=False)
    axes.set_yticks([])
    axes.spines[:].set_visible(False)
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    for place, marks in enumerate(labels):
        axes.vlines(place, 0, 1, color=GREY, lw=0.8, zorder=3)
        for mark, text in marks:
            axes.plot([place, place + 0.03], [mark, mark], color=GREY, lw=0.8, zorder=4)
            axes.text(place + 0.06, mark, text, fontsize=9, va="center", ha="left", zorder=4, bbox=box)
    heads = [*(name.replace("_", " ") for name in names), state.objective.label.replace(" ", "\n")]
    axes.set_xticks(range(len(labels)), heads)
    axes.tick_params(length=0)
    each = f"one of {len(trials)} settings, by its longest trial" if "epochs" in names else "a trial"
    gap = ", with a gap where its net has no gates" if any(np.isnan(share).any() for share in shares) else ""
    figure.suptitle(f"{title}\na line is {each}{gap}; yellow is best", fontsize=11)


def draw_importance(figure: Figure, measured: Importance, state: SearchState, title: str) -> None:
    """Draws the importance of each hyperparameter, the greatest on top.

    Args:
        figure: an empty figure.
        measured: the result of `importance`.
        state: the state of the search.
        title: title of the figure.
    """
    axes = figure.subplots()
    points = state.objective.name == "val_accuracy"
    added = measured.added * (100 if points else 1)
    means, spread = added.mean(axis=1), added.std(axis=1)
    order = np.argsort(means)
    names = [measured.names[index].replace("_", " ") for index in order]
    axes.barh(names, means[order], xerr=spread[order], color=BLUE, height=0.6, error_kw={"ecolor": GREY, "lw": 1.2})
    axes.grid(visible=False, axis="y")
    axes.axvline(0, color=GREY, lw=0.8)
    axes.set_xlabel(f"error added by shuffling it{', in percentage points' if points else ''}")
    error = f"{measured.error * 100:.2g} percentage points" if points else ticks.short(measured.error, 3)
    notes = [
        f"Random forests predict the {state.objective.label} of {measured.settings} held-out settings:",
        f"mean error {error}, R² {measured.r2:.2f} (1 is perfect, 0 or less no better than the mean).",
        "A bar is the error added by shuffling the values of one hyperparameter.",
    ]
    if any(trial.status == "failed" for trial in state.trials):
        notes.append("Failed settings count as the worst.")
    if "epochs" in measured.names:
        notes.append("Epochs: better settings were trained longer, so they are effect as well as cause.")
    figure.suptitle(title, fontsize=11)
    axes.set_title("\n".join(notes), fontsize=9, color=GREY, loc="left", x=0)


def _axis(plan: SearchPlan, trials: list[Trial], name: str) -> tuple[np.ndarray, ticks.Ticks]:
    """Returns the positions of the trials on a hyperparameter's axis, from 0 to 1, and the axis labels."""
    values, order = settings.column(plan, trials, name), settings.choices(plan, trials, name)
    if order:
        # Jitter separates trials with the same choice.
        room = min(0.03, 0.25 / len(order))
        shift = np.random.default_rng(len(name)).uniform(-room, room, len(trials))
        return _share(values, 0, len(order) - 1) + shift, ticks.categorical(order)
    low, high = map(float, searched(plan.space)[name])
    if HYPERPARAMETERS[name].logarithmic:
        return _share(np.log10(values), np.log10(low), np.log10(high)), ticks.logarithmic(low, high)
    return _share(values, low, high), ticks.linear(low, high)


def _scores(state: SearchState, trials: list[Trial]) -> tuple[np.ndarray, ticks.Ticks]:
    scores = np.array([trial.score for trial in trials], float)
    low, high = float(scores.min()), float(scores.max())
    format_all = ticks.percents if state.objective.name == "val_accuracy" else ticks.significant
    return _share(scores, low, high), ticks.linear(low, high, format_all)


def _share(values: np.ndarray, low: float, high: float) -> np.ndarray:
    return (values - low) / (high - low) if high > low else np.full(len(values), 0.5)


def _line(row: np.ndarray) -> np.ndarray:
    """Returns the points of a line, with a gap at each axis on which it has no value."""
    places = np.arange(len(row), dtype=float)
    for place in np.flatnonzero(np.isnan(row))[::-1]:
        around = [place - GAP, place, place + GAP]
        known = ~np.isnan(row)
        reached = np.interp(around, places[known], row[known])
        reached[1] = np.nan
        places = np.concatenate([places[:place], around, places[place + 1 :]])
        row = np.concatenate([row[:place], reached, row[place + 1 :]])
    return np.column_stack([places, row])
