"""TensorBoard's HParams page of a search: one session a trial."""

import shutil
from pathlib import Path

import tensorflow as tf
from tensorboard.plugins.hparams import api

from pipelines.tuning.plan import Plan
from pipelines.tuning.space import CHOICES, searched
from pipelines.tuning.state import State


def write(folder: Path, plan: Plan, state: State) -> None:
    """Writes the folder `tensorboard` anew.

    Args:
        folder: of the search.
        plan: its space.
        state: its trials; those with a score are shown.
    """
    board = folder / "tensorboard"
    shutil.rmtree(board, ignore_errors=True)
    domains = {
        name: api.HParam(name, api.Discrete(bounds) if name in CHOICES else api.RealInterval(*map(float, bounds)))
        for name, bounds in searched(plan.space).items()
    }
    if plan.nets:
        domains["net"] = api.HParam("net", api.Discrete([net.name for net in plan.nets]))
    objective = state.objective.name
    with tf.summary.create_file_writer(str(board)).as_default():
        api.hparams_config(list(domains.values()), [api.Metric(objective, display_name=f"best {objective}")])
    for trial in state.ranked:
        with tf.summary.create_file_writer(str(board / trial.number)).as_default():
            values = {domains[name]: value for name, value in plan.meant(trial.values).items()}
            api.hparams(values, trial_id=trial.number)
            tf.summary.scalar(objective, trial.score, step=trial.epochs or plan.config.epochs)
