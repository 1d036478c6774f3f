import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.selection import draw_published, held_out, published_order


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=300), st.floats(0, 1))
def test_each_class_gives_its_share(labels, part):
    labels = np.array(labels)
    count = int(part * len(labels))
    held = held_out(labels, count)
    assert held.sum() == count
    for label in np.unique(labels):
        share = (labels == label).sum() * count / len(labels)
        assert abs(held[labels == label].sum() - share) < 1


def test_the_remainder_goes_to_the_classes_that_lack_most():
    labels = np.repeat([0, 1, 2], [9, 6, 5])
    assert np.bincount(labels[held_out(labels, 4)]).tolist() == [2, 1, 1]  # Shares 1.8, 1.2 and 1.


def test_equal_classes_stay_equal():
    labels = np.random.default_rng(0).permutation(np.repeat(np.arange(10), 500))
    held = held_out(labels, 1000)
    assert np.bincount(labels[held]).tolist() == [100] * 10
    assert np.bincount(labels[~held]).tolist() == [400] * 10


def test_the_choice_never_changes():
    # Runs a year apart must use the same examples, with any version of NumPy.
    assert np.flatnonzero(held_out(np.arange(40) % 4, 8)).tolist() == [2, 3, 11, 13, 18, 20, 21, 32]


def test_the_choice_is_spread_over_the_data():
    held = np.flatnonzero(held_out(np.zeros(10_000, int), 1000))
    assert abs(held.mean() - 5000) < 5 * 10_000 / np.sqrt(12 * 1000)


SIZES = {"train": 60_000, "test": 10_000}
seeds = st.integers(0, 2**32)
sizes = st.fixed_dictionaries({"train": st.integers(1, 300), "test": st.integers(1, 300)})


@given(st.sampled_from(["train", "test"]), st.integers(1, 500))
def test_every_example_has_its_own_place(split, count):
    assert sorted(published_order(split, count)) == list(range(count))


def test_each_split_has_its_own_order():
    assert published_order("train", 50).tolist() != published_order("test", 50).tolist()


@settings(deadline=None)
@given(seeds, sizes, st.data())
def test_a_smaller_draw_is_part_of_a_larger_one(seed, sizes, data):
    split = data.draw(st.sampled_from(["train", "test"]))
    large = data.draw(st.integers(1, sizes[split]))
    small = data.draw(st.integers(1, large))
    whole = draw_published(seed, split, large, sizes)
    assert len(set(whole)) == large
    assert whole.tolist() == sorted(whole)
    assert set(draw_published(seed, split, small, sizes)) <= set(whole) <= set(range(sizes[split]))


def test_the_draw_never_changes():
    # The runs of the source used these examples, with any version of NumPy.
    for split, count, first in (("train", 6000, [9, 24, 49, 60, 63, 65]), ("test", 2000, [8, 10, 12, 19, 24, 26])):
        published = np.argsort(published_order(split, SIZES[split]))
        assert np.sort(published[draw_published(0, split, count, SIZES)])[:6].tolist() == first
