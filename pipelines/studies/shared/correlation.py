"""Correlations between two series."""

from collections.abc import Sequence

import numpy as np

Series = Sequence[float] | np.ndarray


def correlation(one: Series, other: Series) -> float:
    """Returns Pearson's correlation of two series, float [n]; 0 if one of them is constant."""
    return float(np.corrcoef(one, other)[0, 1]) if np.ptp(one) and np.ptp(other) else 0.0


def rank_correlation(one: Series, other: Series) -> float:
    """Returns Spearman's rank correlation of two series, float [n]; 0 if one of them is constant."""
    from scipy.stats import rankdata

    return correlation(rankdata(one), rankdata(other))
