"""What a walk forward shows, in numbers with their uncertainty: of its forecasts, and of its gates."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from pipelines.core.statistics import rank_correlation
from pipelines.data import french_factors
from pipelines.data.french_factors import MARKET
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.factors.forecasts import Statistic, interval, r2, volatility
from pipelines.studies.papers.factors.walk_forward import TESTED, Walk, walk

YEAR = 12
"""Months over which volatility is taken."""
FIFTHS = 5
"""Parts into which the months are sorted by volatility."""


class Estimate(NamedTuple):
    """A number with its 95 % interval over months."""

    value: float
    low: float
    high: float

    @property
    def told(self) -> str:
        """As it is, such as a correlation: value (low to high)."""
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f})"

    @property
    def percent(self) -> str:
        """The same in percent."""
        return Estimate(*(100 * number for number in self)).told

    @property
    def sign(self) -> int:
        """1 or -1 where the whole interval is on that side of 0, else 0: it may be nothing."""
        return 1 if self.low > 0 else -1 if self.high < 0 else 0


@dataclass(frozen=True)
class Findings:
    """Of a task.

    Args:
        walk: what was forecast, and how open the gates were.
        r2: of each forecast, the runs' mean, against the mean so far.
        lead: what the highway nets' R^2 is above that of each other forecast.
        volatility: at the end of each month, in percent, float [n].
        trained: rank correlation of the gates with volatility.
        untrained: the same before training.
        learned: the first less the second.
        moved: rank correlation of the gates with the size of the market's return in the month that they see.
        fifths: the mean gate in months from the quietest fifth to the wildest, less its mean before the decade, of each
            run, float [runs, 5].
        fifths_untrained: the same before training.
    """

    walk: Walk
    r2: Mapping[str, Estimate]
    lead: Mapping[str, Estimate]
    volatility: np.ndarray
    trained: Estimate
    untrained: Estimate
    learned: Estimate
    moved: Estimate
    fifths: np.ndarray
    fifths_untrained: np.ndarray


@lru_cache(maxsize=2)  # Tables and figures ask for the same, and the intervals take seconds.
def found(results: Results, task: str) -> Findings | None:
    """What the runs of a task show; None if too many diverged.

    Args:
        results: of the study.
        task: "return" or "size".
    """
    walked = walk(results, task)
    if walked is None:
        return None
    market = french_factors.read()[:, MARKET].astype(np.float64)
    volatile = volatility(market, YEAR)[TESTED]
    opened, untrained = walked.opened.mean(axis=0), walked.untrained.mean(axis=0)
    errors = {name: walked.errors(name) for name in walked.forecasts}
    order = volatile.argsort(kind="stable")
    return Findings(
        walk=walked,
        r2={name: _estimate(r2, error, walked.least) for name, error in errors.items()},
        lead={
            name: _estimate(_lead, errors["highway"], error, walked.least)
            for name, error in errors.items()
            if name != "highway"
        },
        volatility=volatile,
        trained=_estimate(rank_correlation, opened, volatile),
        untrained=_estimate(rank_correlation, untrained, volatile),
        learned=_estimate(_more, opened, untrained, volatile),
        moved=_estimate(rank_correlation, opened, np.abs(market[TESTED])),
        fifths=_fifths(walked.opened, order),
        fifths_untrained=_fifths(walked.untrained, order),
    )


def _estimate(statistic: Statistic, *series: np.ndarray) -> Estimate:
    return Estimate(statistic(*series), *interval(statistic, *series))


def _lead(errors: np.ndarray, others: np.ndarray, least: np.ndarray) -> float:
    return r2(errors, least) - r2(others, least)


def _more(one: np.ndarray, other: np.ndarray, volatile: np.ndarray) -> float:
    return rank_correlation(one, volatile) - rank_correlation(other, volatile)


def _fifths(opened: np.ndarray, order: np.ndarray) -> np.ndarray:
    parts = np.array_split(order, FIFTHS)
    return np.stack([opened[:, part].mean(axis=1) for part in parts], axis=1)
