"""The figures of the factor study: what forecasts gain, and gates beside volatility."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes

from pipelines.core.plotting import BLUE, GREEN, GREY, ORANGE, PURPLE, SKY
from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.factors.findings import YEAR, Estimate, Findings
from pipelines.studies.papers.factors.walk_forward import BENT, CONSTANT, RIDGE, TIMES

LINES: dict[str, dict[str, Any]] = {
    "highway": {"color": BLUE, "lw": 2},
    "plain": {"color": ORANGE},
    "residual": {"color": GREEN},
    RIDGE: {"color": "black", "ls": "--"},
    BENT: {"color": PURPLE, "ls": "--"},
    CONSTANT: {"color": GREY, "ls": ":"},
}


def gains(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gains_TASK.png: squared errors of the mean so far less those of each forecast, added up over time.

    Args:
        figures: where to.
        shown: what the runs show.
        task: in the name of the file.
        asked: what is forecast, in words.
    """
    walk, title = shown.walk, f"What forecasts of {asked} gain"
    with figures.figure(f"gains_{task}", (9.4, 4.6), title, told_gains(shown)) as figure:
        axes = figure.subplots()
        for name in walk.forecasts:
            axes.plot(TIMES, np.cumsum(walk.least - walk.errors(name)), label=name, **LINES[name])
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_ylabel("squared errors saved so far, in %²")
        _years(axes)
        figure.legend(loc="outside right center", fontsize=9)


def told_gains(shown: Findings) -> str:
    """What the runs show of the forecasts."""
    better, worse = ([name for name, known in shown.r2.items() if known.sign == sign] for sign in (1, -1))
    lead = {sign: [name for name, known in shown.lead.items() if known.sign == sign] for sign in (1, -1)}
    parts = [
        "Squared errors of the mean of all months before less those of the forecast, added up: a line that rises "
        f"forecasts better than that mean. Over all months R^2 of the highway nets is {shown.r2['highway'].percent} %.",
        f"Better than the mean beyond the interval: {_listed(better)}; worse: {_listed(worse)}.",
        f"The highway nets are beyond the interval better than {_listed(lead[1])}, and worse than {_listed(lead[-1])}.",
    ]
    return " ".join(parts)


def over_time(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gates_over_time_TASK.png: volatility, and below it the mean gate, each month out of sample; as `gains`."""
    title = f"Volatility and gates over time, asked for {asked}"
    with figures.figure(f"gates_over_time_{task}", (10, 6), title, told_gates(shown)) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True)
        top.plot(TIMES, shown.volatility, color=ORANGE)
        top.set_ylabel(f"standard deviation of the\nlast {YEAR} returns, %")
        top.set_ylim(bottom=0)
        opened = shown.walk.opened.mean(axis=0)
        bottom.plot(TIMES, opened, color=SKY, lw=0.5, label="a month")
        bottom.plot(TIMES[YEAR - 1 :], _smooth(opened), color=BLUE, lw=1.8, label=f"mean of {YEAR} months")
        untrained = _smooth(shown.walk.untrained.mean(axis=0))
        bottom.plot(TIMES[YEAR - 1 :], untrained, color=GREY, lw=1.2, ls="--", label="the same, untrained")
        bottom.axhline(0, color=GREY, lw=0.8)
        bottom.set_ylabel("mean gate T, less its mean\nbefore the decade")
        _years(bottom)
        figure.legend(*bottom.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def told_gates(shown: Findings) -> str:
    """What the runs show of gates and volatility."""
    walk = shown.walk
    levels = walk.levels[:, 1]
    return (
        "Every month is out of sample; at each new decade there are new nets. Rank correlation of the mean gate with "
        f"volatility: {shown.trained.told}; {_regimes(shown.trained)}. Before training the same nets have "
        f"{shown.untrained.told}, so training {_change(shown.learned)}. With the size of the one return that the gates "
        f"see it is {shown.moved.told}. T itself has a mean of {levels.min():.3f} to {levels.max():.3f} in a decade."
    )


def _regimes(known: Estimate) -> str:
    return {
        1: "the gates are more open in wild months, as the article has it",
        0: "the interval has 0 in it, so that nothing is shown either way",
        -1: "the gates are more closed in wild months, the reverse of what the article says",
    }[known.sign]


def _change(learned: Estimate) -> str:
    known = f"({learned.told})"
    return {
        1: f"raises it {known}",
        0: f"does not change it beyond the interval {known}",
        -1: f"lowers it {known}",
    }[learned.sign]


def by_volatility(figures: Figures, shown: Findings, task: str, asked: str) -> None:
    """Draws gates_by_volatility_TASK.png: the mean gate from the quietest to the wildest fifth; as `gains`."""
    title = f"Gates in quiet and wild months, asked for {asked}"
    with figures.figure(f"gates_by_volatility_{task}", (7.6, 4.4), title, told_fifths(shown)) as figure:
        axes = figure.subplots()
        for fifths, colour, name in ((shown.fifths, BLUE, "trained"), (shown.fifths_untrained, GREY, "untrained")):
            numbers = np.arange(1, fifths.shape[1] + 1)
            axes.plot(numbers, fifths.T, "o", ms=4, color=colour, alpha=0.5)
            axes.plot(numbers, fifths.mean(axis=0), color=colour, label=f"{name}, mean; dots are seeds")
        axes.axhline(0, color=GREY, lw=0.8)
        axes.set_xticks(numbers, ["quietest\nfifth", *map(str, numbers[1:-1]), "wildest\nfifth"])
        axes.set_xlabel(f"months by the volatility of the last {YEAR}")
        axes.set_ylabel("mean gate T, less its mean\nbefore the decade")
        axes.legend(loc="best", fontsize=9)


def told_fifths(shown: Findings) -> str:
    """What the runs show of the gates between quiet and wild months."""
    trained, untrained = (
        fifths.mean(axis=0)[-1] - fifths.mean(axis=0)[0] for fifths in (shown.fifths, shown.fifths_untrained)
    )
    level = shown.walk.levels[:, 1].mean()
    return (
        f"From the quietest to the wildest fifth of the months the mean gate changes by {trained:+.4f}, "
        f"{abs(trained) / level:.1%} of its mean of {level:.3f}; before training by {untrained:+.4f}."
    )


def _years(axes: Axes) -> None:
    axes.set_xlim(TIMES[0], TIMES[-1])
    axes.set_xticks(range(1940, 2020, 10))
    axes.set_xlabel("month of the forecast")


def _smooth(values: np.ndarray) -> np.ndarray:
    """The mean of the last year up to each month that has one."""
    return np.convolve(values, np.full(YEAR, 1 / YEAR), mode="valid")


def _listed(names: list[str]) -> str:
    return ", ".join(names) or "none"
