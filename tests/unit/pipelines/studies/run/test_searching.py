import pytest

from pipelines.studies.papers import depth_contrast
from pipelines.studies.papers.optimization import STUDY
from pipelines.studies.run.budget import scheduled
from pipelines.studies.run.searching import planned
from pipelines.tuning import space


def test_the_whole_search_is_the_papers():
    plan = planned(STUDY, scheduled(STUDY.arms, STUDY.seeds, 1.0))
    assert (plan.trials, plan.config.epochs, plan.algorithm, plan.label) == (800, 40, "random", "")
    assert {net.name: net.model for net in plan.nets} == {name: arm.config.model for name, arm in STUDY.arms.items()}
    space.check(plan.space, plan.config)


def test_a_budget_takes_from_settings_epochs_and_examples():
    work = scheduled(STUDY.arms, STUDY.seeds, 0.01, each="settings of each net", tested=False)
    assert work.label == (
        "short schedule, budget 0.01: 9 of 40 epochs, 11,111 of 55,000 training examples, "
        "22 of 100 settings of each net"
    )
    plan = planned(STUDY, work)
    assert plan.trials == 22 * 8
    assert (plan.config.epochs, plan.config.subset.train, plan.config.validation) == (9, 11_111, 1010)
    # The rate falls as far over the run as over that of the whole study.
    config = plan.configured({"net": "plain-10", "learning_rate": 0.1, "decay": 0.5})
    assert 9 * 111 / config.schedule.decay_steps == pytest.approx(40, rel=0.05)
    assert config.schedule.factor == 0.5


def test_a_study_without_a_search_has_none():
    study = depth_contrast.STUDY
    with pytest.raises(ValueError, match="depth-contrast draws no settings"):
        planned(study, scheduled(study.arms, 3, 1.0))
