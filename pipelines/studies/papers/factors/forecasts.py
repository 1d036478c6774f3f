"""Simple forecasts of a time series, and scores of forecasts with confidence intervals."""

import itertools
import math
from collections.abc import Callable

import numpy as np

REPEATS = 1000
"""Bootstrap resamples."""
PENALTIES = tuple(10.0**power for power in range(-2, 7))
FOLDS = 5
"""Time-series splits with which ridge regression chooses its penalty."""

Statistic = Callable[..., float]


def mean_so_far(series: np.ndarray, places: range) -> np.ndarray:
    """Forecasts each place by the mean of all values before it: float [places].

    Args:
        series: float [n].
        places: places to forecast; the first is at least 1.

    Example:
        mean_so_far(np.array([1.0, 3.0, 8.0]), range(1, 3))  # [1.0, 2.0]
    """
    return np.cumsum(series)[places.start - 1 : places.stop - 1] / np.arange(places.start, places.stop)


def mean_of_last(series: np.ndarray, places: range, count: int) -> np.ndarray:
    """Forecasts each place by the mean of the `count` values before it: float [places].

    Example:
        mean_of_last(np.array([1.0, 3.0, 8.0]), range(2, 4), 2)  # [2.0, 5.5]
    """
    windows = np.lib.stride_tricks.sliding_window_view(series, count)
    return windows.mean(axis=1)[places.start - count : places.stop - count]


def exponential_mean(series: np.ndarray, places: range, decay: float) -> np.ndarray:
    """Forecasts each place by the exponentially weighted mean of all values before it: float [places].

    Args:
        series: float [n]; the mean starts at its first value.
        places: places to forecast; the first is at least 1.
        decay: weight of the old mean when a value arrives.

    Example:
        exponential_mean(np.array([1.0, 3.0]), range(1, 3), 0.9)  # [1.0, 1.2]
    """
    means = list(itertools.accumulate(series, lambda mean, value: decay * mean + (1 - decay) * value))
    return np.array(means[places.start - 1 : places.stop - 1])


def ridge(features: np.ndarray, targets: np.ndarray, known: range, asked: range) -> np.ndarray:
    """Forecasts by ridge regression; the penalty is chosen by time-series cross-validation on the known places.

    Args:
        features: float [n, f]; standardized with the statistics of the known places.
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
    """Returns the out-of-sample R²: 1 - (squared errors) / (squared errors of the reference forecast).

    Args:
        errors: squared errors, float [n].
        others: squared errors of the reference, float [n].

    Reference:
        Campbell and Thompson 2008, "Predicting excess stock returns out of sample", Review of Financial Studies 21(4),
        equation 1; Goyal and Welch 2008, in the same issue.
    """
    return float(1 - errors.sum() / others.sum())


def clark_west(targets: np.ndarray, forecasts: np.ndarray, means: np.ndarray) -> float:
    """Tests whether forecasts add information to the means so far; returns the one-sided p value.

    A model without information forecasts worse than the mean because it has fitted noise. The test corrects for that,
    so a forecast can be significant with an R² below 0.

    Args:
        targets: float [n], one step ahead.
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
    """Returns the standard deviation of the last returns up to each month.

    Args:
        returns: float [n].
        months: length of the window.

    Returns:
        float [n]; NaN for the first `months - 1`.
    """
    windows = np.lib.stride_tricks.sliding_window_view(returns, months)
    return np.concatenate([np.full(months - 1, np.nan), windows.std(axis=1, ddof=1)])


def interval(statistic: Statistic, *series: np.ndarray) -> tuple[float, float]:
    """Returns the 95% interval of a statistic of time series, by the stationary bootstrap with a fixed seed.

    Args:
        statistic: takes arrays as long as the series.
        *series: float [n] each; all are resampled at the same months, in blocks of the optimal length.

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
