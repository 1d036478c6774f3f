"""The figures of the factor study: gains of the forecasts, and gates against volatility."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pipelines.core.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.factors.findings import YEAR, Findings
from pipelines.studies.papers.factors.walk_forward import CONSTANT, RECENT, RIDGE, RIDGE_SIZES, SMOOTHED, TIMES

LINES: dict[str, dict[str, Any]] = {
    "highway": {"color": BLUE, "lw": 2},
    "plain": {"color": ORANGE},
    "residual": {"color": GREEN},
    RIDGE: {"color": "black", "ls": "--"},
    RIDGE_SIZES: {"color": PURPLE, "ls": "--"},
    CONSTANT: {"color": GREY, "ls": ":"},
    RECENT: {"color": SKY, "ls": "-."},
    SMOOTHED: {"color": "black", "ls": "-."},
}


def gains(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gains_TASK.png: cumulative squared errors of the mean so far minus those of each forecast.

    Args:
        figures: receives the figure.
        shown: findings of the task.
        task: part of the file name.
        asked: the target, in words.
    """
    series, title = shown.walk_forward, f"What forecasts of {asked} gain"
    with figures.figure(f"gains_{task}", (9.4, 4.6), title) as figure:
        axes = figure.subplots()
        for name in series.forecasts:
            axes.plot(TIMES, np.cumsum(series.reference - series.errors(name)), label=name, **LINES[name])
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_ylabel("squared errors saved, %²")
        axes.yaxis.set_major_formatter("{x:,g}")
        _years(axes)
        figure.legend(loc="outside right center", fontsize=9)


def over_time(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gates_over_time_TASK.png: volatility, and below it the out-of-sample mean gate; arguments as in `gains`."""
    title = f"Volatility and gates over time, forecasts of {asked}"
    with figures.figure(f"gates_over_time_{task}", (10, 6), title) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True)
        top.plot(TIMES, shown.volatility, color=ORANGE)
        top.set_ylabel(f"standard deviation of the\nlast {YEAR} returns, %")
        top.set_ylim(bottom=0)
        opened = shown.walk_forward.opened.mean(axis=0)
        bottom.plot(TIMES, opened, color=SKY, lw=0.5, label="one month")
        bottom.plot(TIMES[YEAR - 1 :], _smooth(opened), color=BLUE, lw=1.8, label=f"mean of {YEAR} months")
        untrained = _smooth(shown.walk_forward.untrained.mean(axis=0))
        bottom.plot(TIMES[YEAR - 1 :], untrained, color=GREY, lw=1.2, ls="--", label="the same, before training")
        bottom.axhline(0, color=GREY, lw=0.8)
        bottom.set_ylabel("mean gate T minus its mean\nbefore the decade")
        _years(bottom)
        figure.legend(*bottom.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def by_volatility(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gates_by_volatility_TASK.png: the mean gate by fifths of volatility; same arguments as `gains`."""
    title = f"Gates in quiet and wild months, forecasts of {asked}"
    with figures.figure(f"gates_by_volatility_{task}", (7.6, 4.4), title) as figure:
        axes = figure.subplots()
        for fifths, colour, name in ((shown.fifths, BLUE, "trained"), (shown.fifths_untrained, GREY, "untrained")):
            numbers = np.arange(1, fifths.shape[1] + 1)
            axes.plot(numbers, fifths.T, "o", ms=4, color=colour, alpha=0.5)
            label = f"{name}, mean; dots are seeds" if len(fifths) > 1 else f"{name}, one seed"
            axes.plot(numbers, fifths.mean(axis=0), color=colour, label=label)
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xticks(numbers, ["quietest\nfifth", *map(str, numbers[1:-1]), "wildest\nfifth"])
        axes.set_xlabel(f"months, by volatility of the last {YEAR} returns")
        axes.set_ylabel("mean gate T minus its mean\nbefore the decade")
        axes.legend(loc="best", fontsize=9)


def _years(axes: Axes) -> None:
    axes.set_xlim(TIMES[0], TIMES[-1])
    axes.set_xticks(range(1940, 2020, 10))
    axes.set_xlabel("month of the forecast")


def _smooth(values: np.ndarray) -> np.ndarray:
    """Averages each month with the eleven before it; float [n - 11]."""
    return np.convolve(values, np.full(YEAR, 1 / YEAR), mode="valid")
