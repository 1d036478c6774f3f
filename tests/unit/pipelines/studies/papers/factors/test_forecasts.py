from functools import partial

import numpy as np
import pytest

from pipelines.studies.papers.factors import forecasts
from pipelines.studies.papers.factors.forecasts import (
    clark_west,
    exponential_mean,
    interval,
    mean_of_last,
    mean_so_far,
    r2,
    ridge,
    volatility,
)
from pipelines.studies.shared.correlation import rank_correlation


def series(seed, count=400):
    return np.random.default_rng(seed).normal(size=count)


def test_the_mean_so_far_never_sees_the_month_itself():
    values = np.array([1.0, 3.0, 8.0, 100.0])
    np.testing.assert_allclose(mean_so_far(values, range(1, 4)), [1, 2, 4])
    later = values.copy()
    later[2:] = -50
    np.testing.assert_array_equal(mean_so_far(later, range(1, 3)), mean_so_far(values, range(1, 3)))


def test_running_means_never_see_the_month_itself():
    values = np.array([1.0, 3.0, 8.0, 2.0, 100.0])
    np.testing.assert_allclose(mean_of_last(values, range(2, 5), 2), [2, 5.5, 5])
    np.testing.assert_allclose(exponential_mean(values, range(1, 4), 0.9), [1, 1.2, 1.88])
    later = np.where(np.arange(5) < 3, values, -50)
    for forecast in (partial(mean_of_last, count=2), partial(exponential_mean, decay=0.9)):
        np.testing.assert_array_equal(forecast(later, range(2, 4)), forecast(values, range(2, 4)))


def test_r2_is_0_for_the_mean_so_far_and_1_for_perfect_forecasts():
    least = np.array([4.0, 1.0])
    assert r2(least, least) == 0
    assert r2(np.zeros(2), least) == 1
    assert r2(np.array([5.0, 5.0]), least) == -1


def test_clark_west_by_hand():
    targets, means = np.array([1.0, -1.0, 2.0]), np.zeros(3)
    predicted = np.array([0.5, 0.0, 1.0])
    # (y - m)^2 - (y - f)^2 + (m - f)^2
    gains = np.array([1 - 0.25 + 0.25, 1 - 1 + 0, 4 - 1 + 1])
    t = gains.mean() / (gains.std(ddof=1) / np.sqrt(3))
    from scipy.stats import norm

    assert clark_west(targets, predicted, means) == pytest.approx(norm.sf(t))


def test_clark_west_finds_a_signal_under_noise_that_costs_more_than_it_brings():
    signal, noise = series(0, 4000), series(1, 4000)
    targets = 0.1 * signal + series(2, 4000)
    predicted, means = 0.1 * signal + 0.3 * noise, np.zeros(4000)
    assert r2(np.square(targets - predicted), np.square(targets)) < 0
    assert clark_west(targets, predicted, means) < 0.01
    assert clark_west(targets, 0.3 * noise, means) > 0.01


def test_ridge_finds_a_linear_signal_and_none_in_noise():
    features = series(0, 1200).reshape(-1, 3)
    signal = features @ [1.0, -2.0, 0.0]
    known, asked = range(300), range(300, 400)
    found = ridge(features, signal + 0.1 * series(1), known, asked)
    assert np.corrcoef(found, signal[300:])[0, 1] > 0.99
    assert ridge(features, series(1), known, asked).std() < 0.1


def test_ridge_does_not_see_the_targets_it_forecasts():
    features, targets = series(0, 1200).reshape(-1, 3), series(1)
    other = targets.copy()
    other[300:] += 1000
    one, two = (ridge(features, values, range(300), range(300, 400)) for values in (targets, other))
    np.testing.assert_array_equal(one, two)


def test_correlation_is_of_ranks():
    values = series(0)
    assert rank_correlation(values, np.exp(values)) == pytest.approx(1)
    assert rank_correlation(values, -np.exp(values)) == pytest.approx(-1)
    from scipy.stats import spearmanr

    assert rank_correlation(values, series(1)) == pytest.approx(spearmanr(values, series(1)).statistic)


def test_volatility_is_known_at_the_end_of_its_month():
    returns = series(0, 30)
    found = volatility(returns, 12)
    assert np.isnan(found[:11]).all()
    assert found[11] == pytest.approx(returns[:12].std(ddof=1))
    returns[20:] = 1e6
    np.testing.assert_array_equal(volatility(returns, 12)[11:20], found[11:20])


def test_an_interval_is_wider_for_correlated_months(monkeypatch):
    monkeypatch.setattr(forecasts, "REPEATS", 300)
    steps = series(0, 600)
    lasting = np.convolve(series(1, 620), np.ones(21) / np.sqrt(21), mode="valid")

    def width(values):
        low, high = interval(lambda drawn: float(drawn.mean()), values)
        assert low < values.mean() < high
        return high - low

    # The mean of independent values: 4 standard errors.
    assert width(steps) == pytest.approx(3.92 * steps.std() / np.sqrt(600), rel=0.3)
    assert width(lasting) > 2 * 3.92 * lasting.std() / np.sqrt(600)


def test_an_interval_is_the_same_on_every_call(monkeypatch):
    monkeypatch.setattr(forecasts, "REPEATS", 50)
    assert interval(rank_correlation, series(0), series(1)) == interval(rank_correlation, series(0), series(1))
