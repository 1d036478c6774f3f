"""What a search tried, as the columns of its figures: each setting once, by the trial that trained it longest."""

from collections.abc import Sequence

import numpy as np

from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.space import CHOICES, Value, searched
from pipelines.tuning.state import Trial


def longest(trials: Sequence[Trial]) -> list[Trial]:
    """Of each setting its longest trial: Hyperband goes on with a good one, as another trial, up to a few times.

    Args:
        trials: of a search.

    Returns:
        Those that none of the others goes on with, in the same order.
    """
    earlier = {trial.earlier for trial in trials}
    return [trial for trial in trials if trial.number not in earlier]


def epochs(plan: SearchPlan, trial: Trial) -> int:
    """For how many epochs a setting was trained in all by the end of a trial."""
    return trial.epochs or plan.config.epochs


def names(plan: SearchPlan, trials: Sequence[Trial]) -> list[str]:
    """What differs between trials: "net" in a study, what was searched, and "epochs" where they are not the same."""
    differ = len({epochs(plan, trial) for trial in trials}) > 1
    return [*(["net"] if plan.nets else []), *searched(plan.space), *(["epochs"] if differ else [])]


def choices(plan: SearchPlan, trials: Sequence[Trial], name: str) -> list[Value]:
    """What one of the `names` is chosen from, in order; nothing for a range."""
    if name == "net":
        return [net.name for net in plan.nets]
    if name == "epochs":
        return sorted({epochs(plan, trial) for trial in trials})
    return sorted(searched(plan.space)[name]) if name in CHOICES else []


def column(plan: SearchPlan, trials: Sequence[Trial], name: str) -> np.ndarray:
    """The values of one of the `names` as numbers: a choice by its place among the choices, a range as it is.

    Args:
        plan: of the search.
        trials: that drew them.
        name: of the column.

    Returns:
        float [trials]; NaN where the value means nothing to the net of the trial.
    """
    order = choices(plan, trials, name)
    kept = [plan.meant(trial.values) | {"epochs": epochs(plan, trial)} for trial in trials]
    if order:
        return np.array([order.index(values[name]) for values in kept], float)
    return np.array([values.get(name, np.nan) for values in kept], float)
