"""How much each hyperparameter mattered in a search."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from sklearn.ensemble import RandomForestRegressor
from sklearn.inspection import permutation_importance

from pipelines.tuning.plan import Plan
from pipelines.tuning.space import CHOICES, Value, searched
from pipelines.tuning.state import State, Trial

FEWEST = 10
"""Trials below which a forest says nothing."""
TREES = 200
SHUFFLES = 20


@dataclass(frozen=True)
class Importance:
    """How well a random forest tells the score of a trial from its hyperparameters, and by which of them."""

    names: tuple[str, ...]
    losses: np.ndarray
    """What shuffling the values of one among the trials takes from the forest's R^2: float [names, shuffles]."""
    r2: float
    """Of the forest, on trials that its trees were not grown on."""
    trials: int
    """That were completed, or failed: these count as the worst score."""


def importance(plan: Plan, state: State) -> Importance | None:
    """Measures the importance of every hyperparameter.

    Args:
        plan: of the search.
        state: of its trials.

    Returns:
        The measures; None for fewer than `FEWEST` trials, or if all have the same score.
    """
    trials = [trial for trial in state.trials if trial.over]
    scores = [trial.score for trial in trials if trial.score is not None]
    if len(scores) < FEWEST or min(scores) == max(scores):
        return None
    worst = max(scores, key=state.objective.key)
    targets = np.array([worst if trial.score is None else trial.score for trial in trials])
    names = (*(["net"] if plan.nets else []), *searched(plan.space))
    table = np.column_stack([positions(plan, trials, name) for name in names])
    forest = RandomForestRegressor(TREES, min_samples_leaf=2, oob_score=True, random_state=0).fit(table, targets)
    shuffled = permutation_importance(forest, table, targets, n_repeats=SHUFFLES, random_state=0)
    return Importance(names, shuffled.importances, float(forest.oob_score_), len(trials))


def positions(plan: Plan, trials: Sequence[Trial], name: str) -> np.ndarray:
    """The values of a hyperparameter as numbers: a choice by its place among the choices, a range as it is.

    Args:
        plan: of the search.
        trials: that drew them.
        name: of the hyperparameter, or "net".

    Returns:
        float [trials].
    """
    order = choices(plan, name)
    return np.array([order.index(trial.values[name]) if order else trial.values[name] for trial in trials], float)


def choices(plan: Plan, name: str) -> list[Value]:
    """What a hyperparameter is chosen from, in order; nothing for a range."""
    if name == "net":
        return [net.name for net in plan.nets]
    return sorted(searched(plan.space)[name]) if name in CHOICES else []
