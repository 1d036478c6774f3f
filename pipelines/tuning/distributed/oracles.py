"""Oracles that propose trials: KerasTuner's three, made fault-tolerant."""

from typing import Any

import keras_tuner

from pipelines.core.config import CHOICES
from pipelines.tuning.distributed.fault_tolerance import FaultTolerant
from pipelines.tuning.search_plan import FACTOR, SearchPlan
from pipelines.tuning.search_state import Objective
from pipelines.tuning.space import LOGARITHMIC, searched

FINGERPRINT = "tuner/search"
"""Hyperparameter that carries the fingerprint of the plan."""


class Random(FaultTolerant, keras_tuner.oracles.RandomSearchOracle):
    """Random search; the nets of a study take turns."""

    def populate_space(self, trial_id: str) -> dict[str, Any]:
        """KerasTuner's method."""
        drawn = super().populate_space(trial_id)
        if self.plan.nets and drawn.get("values"):
            drawn["values"]["net"] = self.plan.nets[int(trial_id) % len(self.plan.nets)].name
        return drawn


class Bayesian(FaultTolerant, keras_tuner.oracles.BayesianOptimizationOracle):
    """Bayesian optimization with a Gaussian process."""


class Hyperband(FaultTolerant, keras_tuner.oracles.HyperbandOracle):
    """Hyperband. Failed trials count as the worst of their rung, so that a rung with failures still ends."""

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


def make(plan: SearchPlan, objective: Objective) -> FaultTolerant:
    """Builds the oracle of a plan; `make_fault_tolerant` must be called next.

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
    if plan.algorithm == "hyperband":
        return Hyperband(max_epochs=plan.config.epochs, factor=FACTOR, hyperband_iterations=1, **shared)
    if plan.algorithm == "bayesian":
        # Initial random trials: KerasTuner's default of three per dimension, but at most half of all trials.
        first = min(3 * len(searched(plan.space)), max(1, (plan.trials or 0) // 2))
        return Bayesian(max_trials=plan.trials, num_initial_points=first, **shared)
    return Random(max_trials=plan.trials, **shared)


def _parameters(plan: SearchPlan) -> keras_tuner.HyperParameters:
    space = keras_tuner.HyperParameters()
    space.Fixed(FINGERPRINT, plan.fingerprint)
    for name, bounds in searched(plan.space).items():
        if name in CHOICES:
            space.Choice(name, list(bounds))
        else:
            space.Float(name, *bounds, sampling="log" if name in LOGARITHMIC else "linear")
    if plan.nets:
        space.Choice("net", [net.name for net in plan.nets])
    return space
