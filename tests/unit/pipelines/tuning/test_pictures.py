import numpy as np
import pytest
from PIL import Image

from pipelines.tuning import pictures
from pipelines.tuning.importance import FEWEST, importance

from .plans import study_plan, toy_plan, toy_state, toy_trial


def searched(count, score=lambda values: -abs(values["transform_bias"] + 3), plan=None, failed=()):
    random = np.random.default_rng(0)
    trials = []
    for number in range(count):
        values = {
            "learning_rate": float(10 ** random.uniform(-3, 0)),
            "momentum": float(random.uniform(0, 0.99)),
            "decay": float(random.uniform(0.8, 1)),
            "transform_bias": float(random.uniform(-10, -1)),
            "activation": str(random.choice(["relu", "tanh"])),
        }
        if plan:
            values["net"] = plan.nets[number % len(plan.nets)].name
        if number in failed:
            trials.append(toy_trial(number, status="failed", reason="dead gates", **values))
        else:
            trials.append(toy_trial(number, score(values), **values))
    return toy_state(*trials)


def test_the_hyperparameter_that_decides_is_the_most_important():
    found = importance(toy_plan(), searched(60))
    means = dict(zip(found.names, found.losses.mean(axis=1), strict=True))
    assert max(means, key=means.get) == "transform_bias"
    assert means["transform_bias"] > 10 * max(means["learning_rate"], means["activation"])
    assert 0.7 < found.r2 <= 1


def test_what_makes_trials_fail_is_important_too():
    state = searched(60, score=lambda values: 0.9, failed=())
    trials = [
        toy_trial(number, None, "failed", reason="dead gates", **trial.values)
        if trial.values["learning_rate"] > 0.1
        else toy_trial(number, 0.9 - 0.001 * number, **trial.values)
        for number, trial in enumerate(state.trials)
    ]
    found = importance(toy_plan(), toy_state(*trials))
    assert found.names[int(found.losses.mean(axis=1).argmax())] == "learning_rate"
    assert found.trials == 60


@pytest.mark.parametrize("state", [searched(FEWEST - 1), searched(30, score=lambda values: 0.5)])
def test_too_little_is_not_measured(state):
    assert importance(toy_plan(), state) is None


@pytest.mark.parametrize("count", [1, 2, 40])
def test_pictures_of_a_search(tmp_path, count):
    files = pictures.draw(tmp_path, toy_plan(), searched(count, failed=range(30, 33)))
    assert [file.name for file in files] == ["parallel.png", "importance.png"][: 1 + (count >= FEWEST)]
    for file in files:
        assert np.asarray(Image.open(file)).std() > 5


def test_pictures_of_a_study_show_its_curves(tmp_path):
    plan = study_plan(0.01)
    state = searched(32, plan=plan)
    for trial in state.trials:
        run = tmp_path / "trials" / trial.number
        run.mkdir(parents=True)
        (run / "metrics.csv").write_text("epoch,loss\n1,2.0\n2,0.5\n")
    files = pictures.draw(tmp_path, plan, state)
    assert [file.name for file in files] == ["parallel.png", "importance.png", "depths.png"]
