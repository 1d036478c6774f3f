"""The settings of a search as columns of figures. Each setting appears once, with its longest trial."""

from collections.abc import Sequence

import numpy as np

from pipelines.core.config import HYPERPARAMETERS
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import Trial
from pipelines.tuning.space import Value, searched


def longest(trials: Sequence[Trial]) -> list[Trial]:
    """Selects the longest trial of each setting, because Hyperband continues a trial as further trials.

    Args:
        trials: trials of a search.

    Returns:
        The trials that no other trial continues, in the same order.
    """
    earlier = {trial.earlier for trial in trials}
    return [trial for trial in trials if trial.number not in earlier]


def epochs(plan: SearchPlan, trial: Trial) -> int:
    """Returns the number of epochs that a setting has been trained for by the end of a trial."""
    return trial.epochs or plan.config.epochs


def names(plan: SearchPlan, trials: Sequence[Trial]) -> list[str]:
    """Lists the columns: "net" in a study, the hyperparameters of the search, and "epochs" if these differ."""
    differ = len({epochs(plan, trial) for trial in trials}) > 1
    return [*(["net"] if plan.nets else []), *searched(plan.space), *(["epochs"] if differ else [])]


def choices(plan: SearchPlan, trials: Sequence[Trial], name: str) -> list[Value]:
    """Lists the choices of one of the `names` in order; empty for a range."""
    if name == "net":
        return [net.name for net in plan.nets]
    if name == "epochs":
        return sorted({epochs(plan, trial) for trial in trials})
    return sorted(searched(plan.space)[name]) if HYPERPARAMETERS[name].is_choice else []


def column(plan: SearchPlan, trials: Sequence[Trial], name: str) -> np.ndarray:
    """Returns the values of one of the `names` as numbers; a choice becomes its index.

    Args:
        plan: the plan of the search.
        trials: trials of the search.
        name: name of the column.

    Returns:
        float [trials]; NaN where the value has no effect on the net of the trial.
    """
    order = choices(plan, trials, name)
    rows = [plan.effective(trial.values) | {"epochs": epochs(plan, trial)} for trial in trials]
    if order:
        return np.array([order.index(row[name]) for row in rows], float)
    return np.array([row.get(name, np.nan) for row in rows], float)
