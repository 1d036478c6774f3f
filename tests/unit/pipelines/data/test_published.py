import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.published import drawn, places

SIZES = {"train": 60_000, "test": 10_000}
seeds = st.integers(0, 2**32)
sizes = st.fixed_dictionaries({"train": st.integers(1, 300), "test": st.integers(1, 300)})


@given(st.sampled_from(["train", "test"]), st.integers(1, 500))
def test_every_example_has_a_place_of_its_own(split, count):
    assert sorted(places(split, count)) == list(range(count))


def test_the_splits_are_in_orders_of_their_own():
    assert places("train", 50).tolist() != places("test", 50).tolist()


@settings(deadline=None)
@given(seeds, sizes, st.data())
def test_a_smaller_draw_is_part_of_a_larger_one(seed, sizes, data):
    split = data.draw(st.sampled_from(["train", "test"]))
    large = data.draw(st.integers(1, sizes[split]))
    small = data.draw(st.integers(1, large))
    whole = drawn(seed, split, large, sizes)
    assert len(set(whole)) == large
    assert whole.tolist() == sorted(whole)
    assert set(drawn(seed, split, small, sizes)) <= set(whole) <= set(range(sizes[split]))


def test_the_draw_never_changes():
    # A source's runs are compared with ours on these very examples, on any version of NumPy.
    for split, count, first in (("train", 6000, [9, 24, 49, 60, 63, 65]), ("test", 2000, [8, 10, 12, 19, 24, 26])):
        published = np.argsort(places(split, SIZES[split]))
        assert np.sort(published[drawn(0, split, count, SIZES)])[:6].tolist() == first
