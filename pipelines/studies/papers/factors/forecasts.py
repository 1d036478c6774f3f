"""Forecasts of a series in time: what is easy to say, how much better a forecast is, and how sure that is."""

import math
from collections.abc import Callable

import numpy as np

REPEATS = 1000
"""Resamples of a bootstrap."""
PENALTIES = tuple(10.0**power for power in range(-2, 7))
FOLDS = 5
"""Of the months that ridge regression may learn from, to choose its penalty."""

Statistic = Callable[..., float]


def mean_so_far(series: np.ndarray, places: range) -> np.ndarray:
    """What the mean of all values before each place would have forecast for it: float [places].

    Args:
        series: float [n].
        places: of what is forecast; the first is at least 1.

    Example:
        mean_so_far(np.array([1.0, 3.0, 8.0]), range(1, 3))  # [1.0, 2.0]
    """
    return np.cumsum(series)[places.start - 1 : places.stop - 1] / np.arange(places.start, places.stop)


def ridge(features: np.ndarray, targets: np.ndarray, known: range, asked: range) -> np.ndarray:
    """Forecasts of ridge regression, whose penalty is chosen on later months of the known ones alone.

    Args:
        features: float [n, f]; standardised inside, by the known ones.
        targets: float [n].
        known: places to learn from.
        asked: places to forecast.

    Returns:
        float [asked].
    """
    from sklearn.linear_model import Ridge
    from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    search = GridSearchCV(
        make_pipeline(StandardScaler(), Ridge()),
        {"ridge__alpha": PENALTIES},
        scoring="neg_mean_squared_error",
        cv=TimeSeriesSplit(FOLDS),
    )
    search.fit(features[known], targets[known])
    return np.asarray(search.predict(features[asked]))


def r2(errors: np.ndarray, others: np.ndarray) -> float:
    """1 - (squared errors of forecasts) / (squared errors of the means so far): 0 is no better than these.

    Args:
        errors: squared, float [n].
        others: those of what is to be beaten, squared, float [n].

    Reference:
        Campbell and Thompson 2008, "Predicting excess stock returns out of sample", Review of Financial Studies 21(4),
        equation 1; Goyal and Welch 2008, in the same issue.
    """
    return float(1 - errors.sum() / others.sum())


def clark_west(targets: np.ndarray, forecasts: np.ndarray, means: np.ndarray) -> float:
    """How likely forecasts would look that good, did they know no more than the means so far: a one-sided p.

    A model that knows nothing more forecasts worse than the mean, by the noise that it has fitted; the test adds that
    back, so a forecast can be significant with an R^2 below 0.

    Args:
        targets: float [n], forecast one step ahead.
        forecasts: float [n].
        means: float [n].

    Reference:
        Clark and West 2007, "Approximately normal tests for equal predictive accuracy in nested models", Journal of
        Econometrics 138(1), section 2.
    """
    gains = np.square(targets - means) - (np.square(targets - forecasts) - np.square(means - forecasts))
    t = gains.mean() / (gains.std(ddof=1) / math.sqrt(len(gains)))
    return math.erfc(t / math.sqrt(2)) / 2


def volatility(returns: np.ndarray, months: int) -> np.ndarray:
    """The standard deviation of the last returns up to each month, which is known at its end.

    Args:
        returns: float [n].
        months: how many make one.

    Returns:
        float [n]; NaN for the first `months - 1`.
    """
    windows = np.lib.stride_tricks.sliding_window_view(returns, months)
    return np.concatenate([np.full(months - 1, np.nan), windows.std(axis=1, ddof=1)])


def interval(statistic: Statistic, *series: np.ndarray) -> tuple[float, float]:
    """The 95 % interval of a statistic of series in time, by the stationary bootstrap: the same on every call.

    Args:
        statistic: of arrays as long as the series.
        *series: float [n] each; the same months are drawn of all, in blocks as long as their memory asks for.

    Returns:
        Lower and upper bound.

    Example:
        interval(r2, np.square(targets - forecasts), np.square(targets - means))

    Reference:
        Politis and Romano 1994, "The stationary bootstrap", Journal of the American Statistical Association 89(428);
        block length by Politis and White 2004, Econometric Reviews 23(1).
    """
    from arch.bootstrap import StationaryBootstrap, optimal_block_length

    lengths = optimal_block_length(np.stack(series, axis=1))["stationary"]
    bootstrap = StationaryBootstrap(max(1, math.ceil(lengths.max())), *series, seed=0)
    ends = bootstrap.conf_int(lambda *drawn: np.array([statistic(*drawn)]), REPEATS, method="percentile")
    return float(ends[0, 0]), float(ends[1, 0])
