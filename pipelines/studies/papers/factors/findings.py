"""Findings of a walk-forward validation, with confidence intervals: accuracy of forecasts and behaviour of gates."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pipelines.data import french_factors
from pipelines.data.french_factors import MARKET
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.factors.forecasts import Statistic, interval, r2, volatility
from pipelines.studies.papers.factors.walk_forward import TESTED, WalkForward, walk_forward
from pipelines.studies.shared.correlation import rank_correlation

YEAR = 12
"""Months of a volatility window."""
FIFTHS = 5
"""Groups of months by volatility."""


class IntervalEstimate(NamedTuple):
    """A number with its 95% interval over months."""

    value: float
    low: float
    high: float

    @property
    def text(self) -> str:
        """The number as is, such as a correlation: "+0.30 (+0.11 to +0.46)"."""
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f})"

    @property
    def percent(self) -> str:
        """The number in percent: "+12.7% (+7.1 to +18.4)"."""
        value, low, high = (f"{100 * number:+.2f}" for number in self)
        return f"{value}% ({low} to {high})"

    @property
    def sign(self) -> int:
        """1 or -1 if the whole interval is on that side of 0, else 0."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Findings:
    """Findings of a task.

    Args:
        walk_forward: the forecasts and gates.
        r2: R² of each forecast (mean of its runs) against the mean so far.
        lead: R² of the highway nets minus that of each other forecast.
        volatility: at the end of each month, in percent, float [n].
        trained: rank correlation of the gates with volatility.
        untrained: the same before training.
        learned: `trained` minus `untrained`.
        moved: rank correlation of the gates with the size of the return in the month that they see.
        fifths: mean gate of each run by fifths of volatility, quietest first, minus its mean before the decade, float
            [runs, 5].
        fifths_untrained: the same before training.
    """

    walk_forward: WalkForward
    r2: Mapping[str, IntervalEstimate]
    lead: Mapping[str, IntervalEstimate]
    volatility: np.ndarray
    trained: IntervalEstimate
    untrained: IntervalEstimate
    learned: IntervalEstimate
    moved: IntervalEstimate
    fifths: np.ndarray
    fifths_untrained: np.ndarray


@lru_cache(maxsize=2)  # Shared by tables and figures; the intervals take seconds.
def findings(results: Results, task: str) -> Findings | None:
    """Returns the findings of a task, or None if every run of a kind of net diverged.

    Args:
        results: all runs of the study.
        task: "return" or "size".
    """
    series = walk_forward(results, task)
    if series is None:
        return None
    market = french_factors.read()[:, MARKET].astype(np.float64)
    volatile = volatility(market, YEAR)[TESTED]
    opened, untrained = series.opened.mean(axis=0), series.untrained.mean(axis=0)
    errors = {name: series.errors(name) for name in series.forecasts}
    order = volatile.argsort(kind="stable")
    return Findings(
        walk_forward=series,
        r2={name: _estimate(r2, error, series.reference) for name, error in errors.items()},
        lead={
            name: _estimate(_lead, errors["highway"], error, series.reference)
            for name, error in errors.items()
            if name != "highway"
        },
        volatility=volatile,
        trained=_estimate(rank_correlation, opened, volatile),
        untrained=_estimate(rank_correlation, untrained, volatile),
        learned=_estimate(_more, opened, untrained, volatile),
        moved=_estimate(rank_correlation, opened, np.abs(market[TESTED])),
        fifths=_fifths(series.opened, order),
        fifths_untrained=_fifths(series.untrained, order),
    )


def _estimate(statistic: Statistic, *series: np.ndarray) -> IntervalEstimate:
    return IntervalEstimate(statistic(*series), *interval(statistic, *series))


def _lead(errors: np.ndarray, others: np.ndarray, least: np.ndarray) -> float:
    return r2(errors, least) - r2(others, least)


def _more(one: np.ndarray, other: np.ndarray, volatile: np.ndarray) -> float:
    return rank_correlation(one, volatile) - rank_correlation(other, volatile)


def _fifths(opened: np.ndarray, order: np.ndarray) -> np.ndarray:
    parts = np.array_split(order, FIFTHS)
    return np.stack([opened[:, part].mean(axis=1) for part in parts], axis=1)
