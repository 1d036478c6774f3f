"""Walk-forward validation over the months of the factors.

A fold learns from the months before a decade and forecasts the decade. Concatenated, the folds form one series of
forecasts, each based only on data from before its decade.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from pipelines.core.run import Run, Weights, load_model
from pipelines.data import french_factors
from pipelines.data.french_factors import DECADES, MARKET, MONTHS
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.factors import forecasts

KINDS = {"return": ("highway", "plain", "residual"), "size": ("highway", "plain")}
"""Kinds of nets of each task: next month's return, or its absolute size."""
WEIGHTS: Weights = "best"
"""Weights of the best epoch on the held-out months."""
RIDGE, RIDGE_SIZES, CONSTANT = "ridge", "ridge with sizes", "mean before the decade"
"""Linear in the factors; in the factors and their absolute sizes; constant."""
RECENT, SMOOTHED = "mean of the last 12 sizes", "exponential mean of sizes (0.9)"
"""Forecasts of the size from all earlier sizes, updated every month."""
FOLDS = {decade: french_factors.fold(decade) for decade in DECADES}
TESTS = tuple(fold["test"] for fold in FOLDS.values())
TESTED = range(TESTS[0].start, TESTS[-1].stop)
"""Examples of all test decades, which are contiguous."""
TIMES = np.array([month // 100 + (month % 100 - 1) / 12 for month in MONTHS.tolist()])[TESTED]
"""Time of each forecast, in years."""


Fold = Mapping[str, np.ndarray]
"""Measured arrays of a run, by name."""


@dataclass(frozen=True)
class WalkForward:
    """Forecasts and gates of a task over all `n` months that are forecast.

    Args:
        targets: targets in percent, float [n].
        means: forecasts by the mean of all earlier months, float [n].
        forecasts: forecasts by kind of net and by baseline, float [runs, n].
        opened: mean gate of each highway net minus its mean over all months before the decade, float [runs, n].
        untrained: the same before training.
        levels: mean gate in each decade before and after training, averaged over runs, float [decades, 2].
    """

    targets: np.ndarray
    means: np.ndarray
    forecasts: Mapping[str, np.ndarray]
    opened: np.ndarray
    untrained: np.ndarray
    levels: np.ndarray

    @property
    def reference(self) -> np.ndarray:
        """Squared errors of `means`, the reference, float [n]."""
        return np.square(self.targets - self.means)

    def errors(self, name: str) -> np.ndarray:
        """Squared errors of the mean forecast of all runs, float [n]."""
        return np.square(self.targets - self.forecasts[name].mean(axis=0))


def arm(task: str, kind: str, decade: str) -> str:
    """Returns the name of an arm."""
    return f"{task}-{kind}-{decade}"


def measured(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """Measures a fold: its forecasts, and a highway net's gates in all months up to the last forecast.

    Args:
        run: a finished run.
        data_dir: unused; the months come with a package.

    Returns:
        `forecast`, float [tests]. Highway nets add `gates` and `untrained`, float [months, layers]: means of T over
        the units of each layer after and before training.
    """
    del data_dir
    import tensorflow as tf

    from highway_keras.analysis import GateModel
    from pipelines.data import preprocess
    from pipelines.data.sources import DataInfo
    from pipelines.training.net import build

    # The name of the data contains the fold.
    tests = FOLDS[run.config.data.partition("/")[2].partition("_")[0]]["test"]
    fitted = preprocess.load(run.path / "preprocess.npz")
    x = preprocess.apply(fitted, tf.constant(french_factors.read()[: tests.stop])).numpy()
    net = load_model(run, WEIGHTS)
    found = {"forecast": net.predict(x[tests], verbose=0)[:, 0]}
    if run.record.gates:
        # The seed reproduces the initial weights.
        start = build(run.config, DataInfo(**run.record.data.model_dump()), run.record.precision.policy)
        for name, model in (("gates", net), ("untrained", start)):
            found[name] = np.stack(list(GateModel(model, mean=True).read(x, 256).values()), axis=1)
    return found


def walk_forward(results: Results, task: str) -> WalkForward | None:
    """Concatenates the folds of a task.

    Args:
        results: all runs of the study.
        task: one of `KINDS`.

    Returns:
        The forecasts; a seed that diverged in one fold is left out of all. None if a kind has no seeds left.
    """
    asked = _asked(task)
    runs = {kind: _whole(results, task, kind) for kind in KINDS[task]}
    if not all(runs.values()):
        return None
    series = {
        kind: np.array([np.concatenate([run[name]["forecast"] for name in FOLDS]) for run in found])
        for kind, found in runs.items()
    }
    gated = runs["highway"]
    levels = [
        [np.mean([run[name][state][tests].mean() for run in gated]) for state in ("untrained", "gates")]
        for name, tests in zip(FOLDS, TESTS, strict=True)
    ]
    return WalkForward(
        targets=asked[_months(TESTED)],
        means=forecasts.mean_so_far(asked, _months(TESTED)),
        forecasts={**series, **_baseline_forecasts(task)},
        opened=np.array([_openness(run, "gates") for run in gated]),
        untrained=np.array([_openness(run, "untrained") for run in gated]),
        levels=np.array(levels),
    )


def _whole(results: Results, task: str, kind: str) -> list[dict[str, Fold]]:
    """Returns the measured folds of each seed that finished in every fold, for one kind of net."""
    folds = {
        name: {one.seed: one.measured for one in results.of(arm(task, kind, name)) if one.evaluation} for name in FOLDS
    }
    seeds = sorted(set.intersection(*(set(found) for found in folds.values())))
    return [{name: found[seed] for name, found in folds.items()} for seed in seeds]


def _openness(run: Mapping[str, Fold], state: str) -> np.ndarray:
    """Returns the mean gate in the tested months minus its mean before each test, float [n]."""
    means = [run[name][state].mean(axis=1) for name in FOLDS]
    return np.concatenate([mean[tests] - mean[: tests.start].mean() for mean, tests in zip(means, TESTS, strict=True)])


def _asked(task: str) -> np.ndarray:
    """Returns the target of each month, float [months]."""
    market = french_factors.read()[:, MARKET].astype(np.float64)
    return np.abs(market) if task == "size" else market


@cache  # Independent of the runs.
def _baseline_forecasts(task: str) -> dict[str, np.ndarray]:
    """Returns the baselines, float [1, n] each."""
    factors, asked = french_factors.read().astype(np.float64), _asked(task)
    found: dict[str, list[np.ndarray]] = {RIDGE: [], RIDGE_SIZES: [], CONSTANT: []}
    for tests in TESTS:
        for name, features in ((RIDGE, factors), (RIDGE_SIZES, np.hstack([factors, np.abs(factors)]))):
            found[name].append(forecasts.ridge(features[:-1], asked[1:], range(tests.start), tests))
        found[CONSTANT].append(np.full(len(tests), asked[: tests.start + 1].mean()))
    baselines = {name: np.concatenate(folds) for name, folds in found.items()}
    if task == "size":
        baselines[RECENT] = forecasts.mean_of_last(asked, _months(TESTED), 12)
        baselines[SMOOTHED] = forecasts.exponential_mean(asked, _months(TESTED), 0.9)
    return {name: series[None] for name, series in baselines.items()}


def _months(examples: range) -> range:
    """Returns the months of the examples' targets."""
    return range(examples.start + 1, examples.stop + 1)
