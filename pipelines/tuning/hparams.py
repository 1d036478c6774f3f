"""TensorBoard's HParams page of a search: one session a setting, by its longest trial."""

import shutil
from pathlib import Path

import tensorflow as tf
from tensorboard.plugins.hparams import api

from pipelines.tuning import settings
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.space import searched
from pipelines.tuning.state import SearchState


def write(folder: Path, plan: SearchPlan, state: SearchState) -> None:
    """Writes the folder `tensorboard` anew.

    Args:
        folder: of the search.
        plan: its space.
        state: its trials; those with a score are shown.
    """
    board = folder / "tensorboard"
    shutil.rmtree(board, ignore_errors=True)
    trials = settings.longest(state.ranked)
    domains = {}
    for name in settings.names(plan, trials):
        choices = settings.choices(plan, trials, name)
        domain = api.Discrete(choices) if choices else api.RealInterval(*map(float, searched(plan.space)[name]))
        domains[name] = api.HParam(name, domain)
    objective = state.objective.name
    with tf.summary.create_file_writer(str(board)).as_default():
        api.hparams_config(list(domains.values()), [api.Metric(objective, display_name=f"best {objective}")])
    for trial in trials:
        epochs = settings.epochs(plan, trial)
        values = plan.meant(trial.values) | {"epochs": epochs}
        with tf.summary.create_file_writer(str(board / trial.number)).as_default():
            drawn = {domain: values[name] for name, domain in domains.items() if name in values}
            api.hparams(drawn, trial_id=trial.number)
            tf.summary.scalar(objective, trial.score, step=epochs)
