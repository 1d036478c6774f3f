import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config import Space
from pipelines.core.errors import UserError
from pipelines.core.optimizers import CosineSchedule, ExponentialSchedule, StepSchedule
from pipelines.tuning.search_plan import SEARCH_FILE, open_plan

from .plans import SPACE, study_plan, toy_plan


def test_the_full_search_is_that_of_the_paper():
    plan = study_plan()
    assert [net.name for net in plan.nets] == [
        f"{kind}-{depth}" for kind in ("highway", "plain") for depth in (10, 20, 50, 100)
    ]
    assert plan.trials == 800
    assert plan.label == ""
    assert plan.space.transform_bias == (-10.0, -1.0)
    assert plan.space.activation == ("relu", "tanh")


def test_a_budget_is_labelled():
    plan = study_plan(0.01)
    assert (plan.trials, plan.config.epochs) == (80, 4)
    assert plan.label == "budget 0.01: 10 of 100 trials a net, 4 of 40 epochs"
    assert toy_plan(trials=100, share=0.25, epochs=8).label == "budget 0.25: 50 of 100 trials, 4 of 8 epochs"
    assert toy_plan("hyperband", trials=None, share=0.25, epochs=8).label == "budget 0.25: 2 of 8 epochs"


def test_a_budget_scales_schedules_that_count_in_steps():
    def schedule(kept):
        return toy_plan(trials=100, share=0.25, epochs=8, schedule=kept).config.schedule

    assert schedule(ExponentialSchedule(decay_steps=1000)).decay_steps == 500
    assert schedule(StepSchedule(boundaries=(100, 300))).boundaries == (50, 150)
    assert schedule(CosineSchedule(warmup_steps=100)).warmup_steps == 50
    assert schedule(CosineSchedule(warmup=0.1)) == CosineSchedule(warmup=0.1)


@given(st.floats(0.0001, 1), st.integers(1, 1000), st.integers(1, 1000))
def test_a_budget_never_exceeds_the_whole_and_is_never_empty(share, trials, epochs):
    plan = toy_plan(trials=trials, share=share, epochs=epochs)
    assert 1 <= plan.trials <= trials
    assert 1 <= plan.config.epochs <= epochs


def test_nets_replace_that_of_the_configuration():
    plan = study_plan()
    config = plan.configured({"net": "plain-20", "transform_bias": -5.0, "learning_rate": 0.1})
    assert config.model.model_dump(exclude_none=True) == {"preset": "mnist_dense_50_plain", "depth": 20}
    assert plan.configured({"net": "highway-20", "transform_bias": -5.0}).model.transform_bias == -5.0


def test_truth_values_are_shown_as_such():
    # KerasTuner draws False and True as 0 and 1.
    plan = toy_plan(space=Space(mirror=(False, True), pad=(0, 1), mixup=(0.0, 1.0)))
    values = {"mirror": 1, "pad": 1, "mixup": 0.5, "net": "toy"}
    assert [*map(str, plan.effective(values).values())] == ["True", "1", "0.5", "toy"]
    assert plan.configured(values).augment.mirror is True


def test_a_plan_is_kept_and_found_again(tmp_path):
    SEARCH_FILE.keep(toy_plan(), tmp_path / "a")
    SEARCH_FILE.keep(toy_plan(), tmp_path / "a")
    assert open_plan(tmp_path / "a") == toy_plan()


def test_another_search_in_the_same_folder_is_refused_by_what_differs(tmp_path):
    SEARCH_FILE.keep(toy_plan(), tmp_path / "a")
    other = toy_plan(space=SPACE.model_copy(update={"transform_bias": (-5.0, -1.0)}), epochs=3)
    with pytest.raises(
        UserError, match=r"config.epochs was 2 and is 3; space.transform_bias was .* and is \(-5.0, -1.0\)"
    ):
        SEARCH_FILE.keep(other, tmp_path / "a")
    assert open_plan(tmp_path / "a") == toy_plan()


def test_a_folder_with_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="exists and is not a search folder"):
        SEARCH_FILE.keep(toy_plan(), tmp_path)
    with pytest.raises(UserError, match="exists and is not a search folder"):
        SEARCH_FILE.keep(toy_plan(), tmp_path / "thesis.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_damaged_plan_is_reported(tmp_path):
    SEARCH_FILE.keep(toy_plan(), tmp_path / "a")
    (tmp_path / "a" / "search.json").write_text('{"name": 3}')
    with pytest.raises(UserError, match=r"search.json is damaged or of another version"):
        open_plan(tmp_path / "a")
    with pytest.raises(UserError, match="is not a search folder"):
        open_plan(tmp_path)


def test_one_process_at_a_time_holds_a_search(tmp_path):
    SEARCH_FILE.keep(toy_plan(), tmp_path / "a")
    again = pytest.raises(UserError, match="another process is searching")
    with SEARCH_FILE.locked(tmp_path / "a"), again, SEARCH_FILE.locked(tmp_path / "a"):
        pass
    with SEARCH_FILE.locked(tmp_path / "a"):
        pass
