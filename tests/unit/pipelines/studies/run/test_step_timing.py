import pytest

from pipelines.core import environment
from pipelines.core.config import Subset
from pipelines.core.optimizers import Adam, ExponentialSchedule
from pipelines.studies.framework.study import Arm, Counts
from pipelines.studies.run import step_timing
from pipelines.studies.run.step_timing import Timing
from tests.toy_data import toy_config


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_measurement_is_found_again():
    made = Timing(start=2.0, step=0.01)
    assert step_timing.cached(toy_config()) is None
    step_timing.keep(made, step_timing.file(toy_config()))
    assert step_timing.cached(toy_config()) == made


@pytest.mark.parametrize(
    "changes",
    [
        {"seed": 4},
        {"epochs": 9},
        {"recipe": "b"},
        {"schedule": ExponentialSchedule()},
        {"model": toy_config().model.model_copy(update={"transform_bias": -9.0})},
        {"data": "toy/another_fold"},
        {"subset": Subset(train=40)},
    ],
)
def test_changes_without_effect_on_a_step_share_its_measurement(changes):
    assert step_timing.file(toy_config(**changes)) == step_timing.file(toy_config())


@pytest.mark.parametrize(
    "changes",
    [
        {"batch_size": 40},
        {"data": "b"},
        {"optimizer": Adam()},
        {"model": toy_config().model.model_copy(update={"depth": 9})},
    ],
)
def test_changes_of_a_step_need_another_measurement(changes):
    assert step_timing.file(toy_config(**changes)) != step_timing.file(toy_config())


def test_another_machine_version_or_backend_is_measured_again(monkeypatch):
    found = {step_timing.file(toy_config())}
    for name, other in (("cores", 64), ("cpu", ("Other", ())), ("versions", {"keras": "9"})):
        with monkeypatch.context() as patch:
            patch.setattr(environment, name, lambda other=other: other)
            found.add(step_timing.file(toy_config()))
    monkeypatch.setenv("KERAS_BACKEND", "another")
    found.add(step_timing.file(toy_config()))
    assert len(found) == 5


@pytest.mark.parametrize("text", ["", "{", '{"start": 1}', '{"start": 0, "step": 1}'])
def test_a_damaged_measurement_is_ignored(text):
    path = step_timing.file(toy_config())
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert step_timing.cached(toy_config()) is None


def test_a_study_costs_its_starts_and_its_steps():
    costs = {"a": Timing(start=10.0, step=0.1), "b": Timing(start=20.0, step=0.2)}
    # Batches of 20: the rest of an epoch starts the next one.
    counts = {"a": Counts(train=1019, test=0), "b": Counts(train=400, test=0)}
    arms = {name: Arm(config=toy_config(epochs=2), data=counts[name]) for name in costs}
    assert step_timing.of_study(costs, arms, seeds=3) == pytest.approx(3 * (10 + 2 * 50 * 0.1 + 20 + 2 * 20 * 0.2))
