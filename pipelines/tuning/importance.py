"""Permutation importance of the hyperparameters of a search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from pipelines.tuning import settings
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import SearchState, Trial

FEWEST = 10
"""Minimum number of settings for measuring importance."""
FOLDS = 5
TREES = 200
SHUFFLES = 20


@dataclass(frozen=True)
class Importance:
    """Accuracy of random forests that predict scores of held-out settings, and the hyperparameters it rests on."""

    names: tuple[str, ...]
    """The hyperparameters, "net" in a study, and "epochs" if some settings were trained longer."""
    added: np.ndarray
    """Error added by shuffling the values of a hyperparameter among the settings: float [names, shuffles]."""
    error: float
    """Mean absolute error of the predictions, in units of the score."""
    r2: float
    """R² of the predictions: 1 is perfect, 0 no better than the mean score."""
    settings: int
    """Number of completed and failed settings; failures count as the worst score."""


def importance(plan: SearchPlan, state: SearchState) -> Importance | None:
    """Measures the importance of every hyperparameter.

    Each setting counts once, with its longest trial. A forest fitted to the other folds predicts its score, because a
    forest fits even the noise of its own training settings.

    Args:
        plan: the plan of the search.
        state: the state of the search.

    Returns:
        The measures; None for fewer than `FEWEST` settings with a score, for fewer than two hyperparameters, or if
        all scores are equal.
    """
    trials = _distinct(plan, settings.longest([trial for trial in state.trials if trial.over]))
    scores = [trial.score for trial in trials if trial.score is not None]
    names = settings.names(plan, trials)
    if len(scores) < FEWEST or len(names) < 2 or min(scores) == max(scores):
        return None
    worst = max(scores, key=state.objective.key)
    targets = np.array([worst if trial.score is None else trial.score for trial in trials])
    table = np.column_stack([settings.column(plan, trials, name) for name in names])
    tables = [table, *_shuffled(table)]
    predictions = np.empty((len(tables), len(trials)))
    for fitted, held_out in KFold(FOLDS, shuffle=True, random_state=0).split(table):
        forest = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0).fit(table[fitted], targets[fitted])
        rows = np.concatenate([each[held_out] for each in tables])
        predictions[:, held_out] = forest.predict(rows).reshape(len(tables), -1)
    errors = np.abs(predictions - targets).mean(axis=1)
    added = (errors[1:] - errors[0]).reshape(len(names), SHUFFLES)
    return Importance(tuple(names), added, float(errors[0]), float(r2_score(targets, predictions[0])), len(trials))


def _distinct(plan: SearchPlan, trials: Sequence[Trial]) -> list[Trial]:
    """Returns one trial of each setting: a copy of a held-out setting would be among those that a forest is fitted to.

    Bayesian searches of earlier versions repeated settings.
    """
    first: dict[tuple[object, ...], Trial] = {}
    for trial in trials:
        first.setdefault((*sorted(plan.effective(trial.values).items()), trial.epochs), trial)
    return [*first.values()]


def _shuffled(table: np.ndarray) -> list[np.ndarray]:
    """Returns copies of a table with one column shuffled, `SHUFFLES` per column; NaN stays in place."""
    random, copies = np.random.default_rng(0), []
    for index, values in enumerate(table.T):
        valid = ~np.isnan(values)
        for _ in range(SHUFFLES):
            copy = table.copy()
            copy[valid, index] = random.permutation(values[valid])
            copies.append(copy)
    return copies
