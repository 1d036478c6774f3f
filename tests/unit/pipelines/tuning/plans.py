"""Plans and states of fictitious searches."""

from pipelines.core.config import Space
from pipelines.studies.papers.optimization import STUDY
from pipelines.tuning.search_plan import Candidate, planned
from pipelines.tuning.search_state import Objective, SearchState, Trial
from tests.toy_data import toy_config

SPACE = Space(learning_rate=(0.001, 1.0), activation=("relu", "tanh"), transform_bias=(-10.0, -1.0))
CHOICES = Space(activation=("relu", "tanh", "elu"), batch_size=(32, 64, 128, 256), pad=(0, 1, 2))
ACCURACY = Objective("val_accuracy", "max")


def toy_plan(algorithm="random", trials=8, share=1.0, space=SPACE, nets=(), **changes):
    return planned("toy", toy_config(**changes), space, algorithm=algorithm, trials=trials, share=share, nets=nets)


def study_plan(share=1.0):
    nets = tuple(Candidate(name=name, model=arm.config.model) for name, arm in STUDY.arms.items())
    config = next(iter(STUDY.arms.values())).config
    return planned("optimization", config, STUDY.search, algorithm="random", trials=100, share=share, nets=nets)


def toy_trial(number, score=None, status="completed", *, reason="", seconds=10.0, since=0.0, **values):
    drawn = {"learning_rate": 0.1, "activation": "relu", "transform_bias": -2.0, **values}
    return Trial(
        f"{number}",
        status,
        drawn,
        score,
        reason,
        since=since,
        seconds=seconds,
        epochs=None,
        earlier=None,
        before=0,
    )


def toy_state(*trials, objective=ACCURACY, over=True):
    return SearchState(objective, over, trials)
