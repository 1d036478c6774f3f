"""How much each hyperparameter mattered in a search."""

from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold

from pipelines.tuning import settings
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.state import SearchState

FEWEST = 10
"""Settings below which a forest says nothing."""
FOLDS = 5
TREES = 200
SHUFFLES = 20


@dataclass(frozen=True)
class Importance:
    """How well random forests guess the score of a setting that they were not grown on, and by what."""

    names: tuple[str, ...]
    """The hyperparameters; "net" in a study, and "epochs" where some were trained longer."""
    added: np.ndarray
    """What shuffling the values of one among the settings adds to the error: float [names, shuffles]."""
    error: float
    """Mean absolute error of the guess, in units of the score."""
    r2: float
    """Of the guess: 1 is perfect, 0 no better than the mean score."""
    settings: int
    """That were completed, or failed: these count as the worst score."""


def importance(plan: SearchPlan, state: SearchState) -> Importance | None:
    """Measures the importance of every hyperparameter.

    Each setting counts once, by its longest trial, and its score is guessed by a forest grown on the other folds: on
    what a forest was grown on, it finds use even for noise.

    Args:
        plan: of the search.
        state: of its trials.

    Returns:
        The measures; None for fewer than `FEWEST` settings with a score, for fewer than two hyperparameters, or if
        all have the same score.
    """
    trials = settings.longest([trial for trial in state.trials if trial.over])
    scores = [trial.score for trial in trials if trial.score is not None]
    names = settings.names(plan, trials)
    if len(scores) < FEWEST or len(names) < 2 or min(scores) == max(scores):
        return None
    worst = max(scores, key=state.objective.key)
    targets = np.array([worst if trial.score is None else trial.score for trial in trials])
    table = np.column_stack([settings.column(plan, trials, name) for name in names])
    tables = [table, *_shuffled(table)]
    guesses = np.empty((len(tables), len(trials)))
    for grown, left in KFold(FOLDS, shuffle=True, random_state=0).split(table):
        forest = RandomForestRegressor(TREES, min_samples_leaf=2, random_state=0).fit(table[grown], targets[grown])
        guesses[:, left] = forest.predict(np.concatenate([each[left] for each in tables])).reshape(len(tables), -1)
    errors = np.abs(guesses - targets).mean(axis=1)
    added = (errors[1:] - errors[0]).reshape(len(names), SHUFFLES)
    return Importance(tuple(names), added, float(errors[0]), float(r2_score(targets, guesses[0])), len(trials))


def _shuffled(table: np.ndarray) -> list[np.ndarray]:
    """Copies of a table with one column shuffled, `SHUFFLES` of each; what means nothing (NaN) stays where it is."""
    random, copies = np.random.default_rng(0), []
    for index, values in enumerate(table.T):
        meant = ~np.isnan(values)
        for _ in range(SHUFFLES):
            copy = table.copy()
            copy[meant, index] = random.permutation(values[meant])
            copies.append(copy)
    return copies
