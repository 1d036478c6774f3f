"""A walk forward through the months of the factors: what each fold is measured for, and all folds one after the other.

A fold learns from the months before a decade and forecasts those of the decade. One after the other they are one
series of forecasts, each of which knew nothing but what came before its decade.
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
"""The nets of each task: to forecast next month's return, or its size without the sign."""
WEIGHTS: Weights = "best"
"""Of the epoch that did best on the months held back."""
RIDGE, BENT, CONSTANT = "ridge", "ridge with sizes", "mean before the decade"
"""Linear in the factors; in the factors and their sizes; and in nothing."""
FOLDS = {decade: french_factors.fold(decade) for decade in DECADES}
TESTS = tuple(fold["test"] for fold in FOLDS.values())
TESTED = range(TESTS[0].start, TESTS[-1].stop)
"""The examples of all tests, which follow each other."""
TIMES = np.array([month // 100 + (month % 100 - 1) / 12 for month in MONTHS.tolist()])[TESTED]
"""The months in which the forecasts are made, in years."""


Fold = Mapping[str, np.ndarray]
"""What was measured of a run, by name."""


@dataclass(frozen=True)
class Walk:
    """A task over all months that are forecast; `n` of them.

    Args:
        targets: what was to be forecast, in percent, float [n].
        means: what the mean of all months before each would have forecast, float [n].
        forecasts: of each kind of net, and of what it is compared with, float [runs, n].
        opened: the mean gate of the highway nets at the factors of the month, less its mean over all months before the
            decade, of each run, float [runs, n].
        untrained: the same of the same nets before training.
        levels: the mean gate of each decade, before training and after it, means over runs, float [decades, 2].
    """

    targets: np.ndarray
    means: np.ndarray
    forecasts: Mapping[str, np.ndarray]
    opened: np.ndarray
    untrained: np.ndarray
    levels: np.ndarray

    @property
    def least(self) -> np.ndarray:
        """The squared errors to be beaten, those of `means`, float [n]."""
        return np.square(self.targets - self.means)

    def errors(self, name: str) -> np.ndarray:
        """The squared errors of the mean of the forecasts of all runs, float [n]."""
        return np.square(self.targets - self.forecasts[name].mean(axis=0))


def arm(task: str, kind: str, decade: str) -> str:
    """The name of an arm."""
    return f"{task}-{kind}-{decade}"


def measured(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """What a fold is measured for: its forecasts, and the gates of a highway net in all months up to the last of them.

    Args:
        run: a run that is over.
        data_dir: not needed, as the months come with a package.

    Returns:
        `forecast`, float [tests], and of a highway net `gates` and `untrained`, float [months, layers]: means of T over
        the units of each layer after and before training.
    """
    del data_dir
    import tensorflow as tf

    from highway_keras.analysis import GateModel
    from pipelines.data import preprocess
    from pipelines.data.sources import DataInfo
    from pipelines.training.net import build

    # The name of its data tells the fold.
    tests = FOLDS[run.config.data.partition("/")[2].partition("_")[0]]["test"]
    fitted = preprocess.load(run.path / "preprocess.npz")
    x = preprocess.apply(fitted, tf.constant(french_factors.read()[: tests.stop])).numpy()
    net = load_model(run, WEIGHTS)
    found = {"forecast": net.predict(x[tests], verbose=0)[:, 0]}
    if run.record.gates:
        # The seed makes the same weights again from which training began.
        start = build(run.config, DataInfo(**run.record.data.model_dump()), run.record.precision.policy)
        for name, model in (("gates", net), ("untrained", start)):
            found[name] = np.stack(list(GateModel(model, mean=True).read(x, 256).values()), axis=1)
    return found


def walk(results: Results, task: str) -> Walk | None:
    """Puts the folds of a task one after the other.

    Args:
        results: of the study.
        task: one of `KINDS`.

    Returns:
        The walk; a run that diverged in one fold is left out of all. None if none of a kind is left.
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
    return Walk(
        targets=asked[_months(TESTED)],
        means=forecasts.mean_so_far(asked, _months(TESTED)),
        forecasts={**series, **_compared(task)},
        opened=np.array([_openness(run, "gates") for run in gated]),
        untrained=np.array([_openness(run, "untrained") for run in gated]),
        levels=np.array(levels),
    )


def _whole(results: Results, task: str, kind: str) -> list[dict[str, Fold]]:
    """What was measured of the runs of a kind: by seed, and of those that came to their end in each fold."""
    folds = {
        name: {one.seed: one.measured for one in results.of(arm(task, kind, name)) if one.evaluation} for name in FOLDS
    }
    seeds = sorted(set.intersection(*(set(found) for found in folds.values())))
    return [{name: found[seed] for name, found in folds.items()} for seed in seeds]


def _openness(run: Mapping[str, Fold], state: str) -> np.ndarray:
    """The mean gate in the months of the tests, less that of all months before each test, float [n]."""
    means = [run[name][state].mean(axis=1) for name in FOLDS]
    return np.concatenate([mean[tests] - mean[: tests.start].mean() for mean, tests in zip(means, TESTS, strict=True)])


def _asked(task: str) -> np.ndarray:
    """What each month was, of that which is forecast, float [months]."""
    market = french_factors.read()[:, MARKET].astype(np.float64)
    return np.abs(market) if task == "size" else market


@cache  # It is the same whatever the runs are.
def _compared(task: str) -> dict[str, np.ndarray]:
    """The forecasts that nets are compared with, float [1, n]."""
    factors, asked = french_factors.read().astype(np.float64), _asked(task)
    found: dict[str, list[np.ndarray]] = {RIDGE: [], BENT: [], CONSTANT: []}
    for tests in TESTS:
        for name, features in ((RIDGE, factors), (BENT, np.hstack([factors, np.abs(factors)]))):
            found[name].append(forecasts.ridge(features[:-1], asked[1:], range(tests.start), tests))
        found[CONSTANT].append(np.full(len(tests), asked[: tests.start + 1].mean()))
    return {name: np.concatenate(folds)[None] for name, folds in found.items()}


def _months(examples: range) -> range:
    """The months that examples are asked for."""
    return range(examples.start + 1, examples.stop + 1)
