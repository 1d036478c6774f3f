import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.core.config import Subset
from pipelines.core.frozen import flat
from pipelines.core.optimizers import CosineSchedule, ExponentialSchedule, StepSchedule
from pipelines.studies.framework.study import Arm, Counts
from pipelines.studies.papers.depth_contrast import STUDY
from pipelines.studies.run.budget import reduced, shortened
from tests.toy_data import toy_config


def counts(train, test=0, drawn=True):
    return Counts(train=train, test=test, drawn=drawn)


def arm(config, *examples):
    return Arm(config=config, data=counts(*examples))


def steps(config, train):
    return config.epochs * (train // config.batch_size)


def test_the_whole_budget_is_the_study_itself():
    work = reduced(STUDY.arms, 3, 1.0)
    configs = {name: one.config for name, one in STUDY.arms.items()}
    assert (work.seeds, work.arms, work.label) == (3, configs, "")


def test_a_budget_is_labelled_with_what_was_scaled():
    work = reduced(STUDY.arms, 3, 0.1)
    # 0.464 of three seeds is one, with 0.3 of its work: 0.548 of the epochs, and examples that make up for rounding.
    assert work.seeds == 1
    assert {config.epochs for config in work.arms.values()} == {7}
    assert {config.subset for config in work.arms.values()} == {Subset(train=3086, test=1029, seed=0)}
    assert work.label == (
        "short schedule, budget 0.1: 7 of 12 epochs, 3,086 of 6,000 training examples, 1,029 of 2,000 test examples, "
        "1 of 3 seeds"
    )


def test_fewer_seeds_than_the_study_defines_are_labelled():
    def label(seeds, share=1.0, **options):
        return reduced(STUDY.arms, seeds, share, defined=3, **options).label

    assert (label(1), label(3), label(36)) == ("1 of 3 seeds", "", "")
    assert label(1, label="short schedule: 10 epochs") == "short schedule: 10 epochs; 1 of 3 seeds"
    assert label(1, 0.1).endswith(", 1 of 3 seeds")
    assert label(36, 0.1).endswith(", 17 of 36 seeds")


def test_the_label_of_a_short_study_says_that_first():
    assert reduced(STUDY.arms, 3, 1.0, label="short schedule: 10 epochs").label == "short schedule: 10 epochs"
    label = reduced(STUDY.arms, 3, 0.1, label="short schedule: 10 epochs").label
    assert label.startswith("short schedule: 10 epochs; budget 0.1: 7 of 12 epochs, ")


def test_arms_of_several_lengths_are_distinguished():
    epochs = {"a": 40, "b": 400, "c": 400}
    arms = {name: arm(toy_config(epochs=count), 50_000, 10_000) for name, count in epochs.items()}
    label = reduced(arms, 1, 0.01).label
    assert label == (
        "short schedule, budget 0.01: 4 of 40 / 40 of 400 epochs, 5,000 of 50,000 training examples, "
        "1,000 of 10,000 test examples, 1 of 1 seeds"
    )


def test_whole_series_of_several_lengths_are_labelled_once():
    arms = {
        decade: Arm(config=toy_config(epochs=30), data=counts(train, 120, drawn=False))
        for decade, train in (("1940s", 129), ("1950s", 225))
    }
    label = reduced(arms, 3, 0.1).label
    assert label == "short schedule, budget 0.1: 9 of 30 epochs, all training examples, 1 of 3 seeds"


@given(st.floats(1e-7, 1), st.integers(1, 10), st.integers(1, 500), st.integers(20, 100_000), st.booleans())
def test_a_budget_never_exceeds_the_whole_and_is_never_empty(share, seeds, epochs, train, drawn):
    config = toy_config(epochs=epochs)
    work = reduced({"a": arm(config, train, 300, drawn)}, seeds, share)
    short = work.arms["a"]
    kept = short.subset.train or train
    assert 1 <= work.seeds <= seeds
    assert 1 <= short.epochs <= epochs
    assert config.batch_size <= kept <= train
    if not drawn:
        assert short.subset == config.subset
    else:
        # What rounding adds to seeds and epochs is taken from the examples, but a run has at least one batch.
        spent, least = (work.seeds * short.epochs * examples for examples in (kept, config.batch_size))
        assert spent <= max(share * seeds * epochs * train, least) + work.seeds * short.epochs


def test_everything_else_stays_the_same():
    config = toy_config(epochs=40, seed=3, batch_size=50)
    before, after = flat(config), flat(shortened(config, 0.25, counts(50_000, 10_000)))
    assert {field for field in before if before[field] != after[field]} == {"epochs", "subset.train", "subset.test"}
    assert (after["epochs"], after["subset.train"], after["subset.test"]) == (20, 25_000, 5_000)


def test_boundaries_keep_their_relative_position_in_the_run():
    config = toy_config(epochs=400, batch_size=100, schedule=StepSchedule(boundaries=(100_000, 150_000, 175_000)))
    short = shortened(config, 0.01, counts(50_000, 10_000))
    assert steps(short, short.subset.train) == 40 * 50
    assert short.schedule.boundaries == (1000, 1500, 1750)
    # In a run this short, the boundaries coincide, and the rate drops once.
    assert shortened(config, 1e-6, counts(50_000, 10_000)).schedule.boundaries == (1,)


def test_decay_and_warm_up_are_shortened_too():
    exponential = toy_config(epochs=100, schedule=ExponentialSchedule(decay_steps=500))
    assert shortened(exponential, 0.01, counts(10_000, 0)).schedule.decay_steps == 5
    cosine = toy_config(epochs=100, schedule=CosineSchedule(warmup_steps=1000))
    assert shortened(cosine, 0.01, counts(10_000, 0)).schedule.warmup_steps == 10
    least = shortened(cosine, 1e-9, counts(10_000, 0))
    assert (steps(least, least.subset.train), least.schedule.warmup_steps) == (1, 0)


def test_validation_is_scaled_with_the_examples():
    assert shortened(toy_config(epochs=100, validation=5000), 0.01, counts(45_000, 10_000)).validation == 500


def test_time_series_are_not_subsampled():
    short = shortened(toy_config(epochs=100), 0.1, counts(775, 167, False))
    assert (short.epochs, short.subset) == (10, Subset())


def test_few_test_examples_are_kept():
    assert shortened(toy_config(), 1e-6, counts(60_000, 10_000)).subset.test == 100
    assert shortened(toy_config(), 1e-6, counts(60_000, 40)).subset.test == 40


@pytest.mark.parametrize("share", [0.5, 0.01])
def test_a_share_of_the_work_is_about_that_share(share):
    work = reduced(STUDY.arms, 3, share)
    configs = [one.config for one in STUDY.arms.values()]
    spent = sum(work.seeds * steps(config, config.subset.train) for config in work.arms.values())
    whole = sum(3 * steps(config, 6000) for config in configs)
    assert 0.6 * share < spent / whole < 1.6 * share


def test_an_arm_says_how_many_examples_it_takes():
    assert STUDY.arms["plain-5"].counts == counts(6000, 2000)
    part = toy_config(subset=Subset(train=50))
    assert arm(part, 200, 60).counts == counts(50, 60)
    with pytest.raises(ValueError, match="number of its examples"):
        Arm(config=part)
