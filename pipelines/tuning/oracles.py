"""Oracles that propose trials: KerasTuner's three, with their state in memory (`ask_tell` saves it)."""

import math
import warnings
from collections.abc import Sequence
from typing import Any

import keras_tuner

from pipelines.core.config import HYPERPARAMETERS
from pipelines.tuning.search_plan import FACTOR, SearchPlan, hyperband_rungs
from pipelines.tuning.search_state import Objective
from pipelines.tuning.space import searched

FINGERPRINT = "tuner/search"
"""Constant among the hyperparameters. Every hyperparameter consumes random numbers, so without it a search that an
earlier version began would continue with other settings."""
RANDOM_STATE = "random_state"


class InMemory(keras_tuner.Oracle):
    """Mixin without KerasTuner's files, which are not written atomically; it comes first among the bases of a class."""

    def save(self) -> None:
        """KerasTuner's method."""

    def _save_trial(self, trial: Any) -> None:
        pass


class Random(InMemory, keras_tuner.oracles.RandomSearchOracle):
    """Random search; the nets of a study take turns."""

    nets: Sequence[str] = ()

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """KerasTuner's method."""
        drawn = super().populate_space(trial_id)
        if self.nets and drawn.get("values"):
            drawn["values"]["net"] = self.nets[int(trial_id) % len(self.nets)]
        return drawn


class Bayesian(InMemory, keras_tuner.oracles.BayesianOptimizationOracle):
    """Bayesian optimization with a Gaussian process. KerasTuner's state lacks the generator of its starting points."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """KerasTuner's method."""
        # scikit-learn would warn, in the middle of the table of trials, of bounds of the kernel that users cannot set.
        with warnings.catch_warnings(action="ignore"):
            proposed: dict[str, Any] = super().populate_space(trial_id)
        # Among choices, the most promising setting is often one that was tried: another trial of it would tell nothing.
        if any(trial.hyperparameters.values == proposed["values"] for trial in self.trials.values()):
            return self._random_populate_space()
        return proposed

    def get_state(self) -> dict[str, Any]:
        """KerasTuner's method."""
        name, keys, *rest = self._random_state.get_state()
        return super().get_state() | {RANDOM_STATE: [name, keys.tolist(), *rest]}

    def set_state(self, state: dict[str, Any]) -> None:
        """KerasTuner's method."""
        super().set_state(state)
        # Earlier versions did not save it.
        if RANDOM_STATE in state:
            self._random_state.set_state(tuple(state[RANDOM_STATE]))


class Hyperband(InMemory, keras_tuner.oracles.HyperbandOracle):
    """Hyperband. Failed trials count as the worst of their rung, so that a rung with failures still ends.

    KerasTuner waits for full rungs, and ends the search if the space has too few settings to fill the first one.
    """

    rungs: Sequence[Sequence[tuple[int, int]]] = ()

    def _get_size(self, bracket_num: int, round_num: int) -> int:
        # KerasTuner numbers the brackets backwards.
        return self.rungs[-1 - bracket_num][round_num][1]

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """KerasTuner's method."""
        failed = [trial for trial in self.trials.values() if trial.status == "FAILED"]
        for trial in failed:
            trial.status = "COMPLETED"
            trial.score = float("-inf" if self.objective.direction == "max" else "inf")
        try:
            return super().populate_space(trial_id)
        finally:
            for trial in failed:
                trial.status, trial.score = "FAILED", None


def make(plan: SearchPlan, objective: Objective) -> keras_tuner.Oracle:
    """Builds the oracle of a plan.

    Args:
        plan: algorithm, space, number of trials and seed.
        objective: the validation metric.

    Returns:
        The oracle.
    """
    shared: dict[str, Any] = {
        "objective": keras_tuner.Objective(objective.name, objective.direction),
        "hyperparameters": _parameters(plan),
        "seed": plan.config.seed + 1,  # KerasTuner replaces 0 with a random seed.
        "max_consecutive_failed_trials": None,
    }
    oracle: keras_tuner.Oracle
    if plan.algorithm == "hyperband":
        oracle = Hyperband(max_epochs=plan.config.epochs, factor=FACTOR, hyperband_iterations=1, **shared)
        oracle.rungs = hyperband_rungs(plan.config.epochs, plan.settings)
    elif plan.algorithm == "bayesian":
        # Initial random trials: KerasTuner's default of three per dimension, but at most half of all trials.
        first = min(3 * len(searched(plan.space)), max(1, (plan.trials or 0) // 2))
        oracle = Bayesian(max_trials=plan.trials, num_initial_points=first, **shared)
    else:
        oracle = Random(max_trials=plan.trials, **shared)
        oracle.nets = [net.name for net in plan.nets]
    oracle.verbose = 0
    if math.isfinite(plan.settings):
        # No setting is left after that many draws in a row that were tried before. KerasTuner gives up after 20.
        oracle._max_collisions = 100 * int(plan.settings)
    return oracle


def _parameters(plan: SearchPlan) -> keras_tuner.HyperParameters:
    space = keras_tuner.HyperParameters()
    space.Fixed(FINGERPRINT, plan.fingerprint)
    for name, bounds in searched(plan.space).items():
        if HYPERPARAMETERS[name].is_choice:
            space.Choice(name, list(bounds))
        else:
            space.Float(name, *bounds, sampling="log" if HYPERPARAMETERS[name].logarithmic else "linear")
    if plan.nets:
        space.Choice("net", [net.name for net in plan.nets])
    return space
