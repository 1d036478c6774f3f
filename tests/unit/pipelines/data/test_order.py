import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.data.order import TURNS, Members, balanced_at, examples_at, positions, shuffled


def epoch(number, count, seed=0):
    return examples_at(tf.range(number * count, (number + 1) * count, dtype=tf.int64), count, seed).numpy()


@settings(max_examples=40, deadline=None)
@given(count=st.integers(1, 300), number=st.integers(0, 10**6), seed=st.integers(0, 2**63 - 1))
def test_every_example_appears_once_per_epoch(count, number, seed):
    assert sorted(epoch(number, count, seed)) == list(range(count))


def test_positions_follow_each_other():
    steps = [positions(tf.constant(step, tf.int64), 7) for step in range(3)]
    np.testing.assert_array_equal(tf.concat(steps, 0), np.arange(21))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_a_position_does_not_depend_on_its_batch(places):
    together = examples_at(tf.constant(places, tf.int64), 1000, 3).numpy()
    alone = [examples_at(tf.constant([place], tf.int64), 1000, 3).numpy()[0] for place in places]
    assert together.tolist() == alone


def test_every_epoch_and_seed_has_its_own_order():
    orders = {epoch(number, 50, seed).tobytes() for number in range(5) for seed in range(5)}
    assert len(orders) == 25


@pytest.mark.parametrize("count", [4_000, 45_000, 50_000, 60_000])
def test_orders_are_as_good_as_random(count):
    """With the 4 rounds of `tf.random.experimental.index_shuffle`, two epochs of 50,000 have a correlation of 0.7."""
    epochs = [epoch(number, count) for number in range(20)]
    noise = 5 / np.sqrt(count)  # Five standard deviations of a random correlation.
    for first, second in itertools.pairwise(epochs):
        assert abs(np.corrcoef(first, second)[0, 1]) < noise
    for order in epochs:
        assert abs(np.corrcoef(order, np.arange(count))[0, 1]) < noise
        assert abs(np.corrcoef(order[:-1], order[1:])[0, 1]) < noise
        # Differences between consecutive examples: at random, the most frequent occurs less than a dozen times.
        assert np.unique(np.diff(order), return_counts=True)[1].max() < 16


@settings(max_examples=30, deadline=None)
@given(
    labels=st.lists(st.sampled_from([0, 2, 3, 7]), min_size=1, max_size=60).map(np.array),
    seed=st.integers(0, 2**63 - 1),
)
def test_balanced_classes_take_turns_and_show_all_their_examples_before_one_again(labels, seed):
    classes, counts = np.unique(labels, return_counts=True)
    turns = 3 * counts.max()
    found = balanced_at(tf.range(turns * len(classes), dtype=tf.int64), Members.of(labels), seed).numpy()
    for turn in labels[found].reshape(turns, len(classes)):
        assert sorted(turn) == list(classes)
    for number, count in zip(classes, counts, strict=True):
        own = found[labels[found] == number]
        for start in range(0, turns - count + 1, count):
            assert sorted(own[start : start + count]) == list(np.flatnonzero(labels == number))


def test_balanced_orders_depend_on_seed_and_position_alone():
    members = Members.of(np.arange(1000) % 7 % 4)
    together = balanced_at(tf.range(500, dtype=tf.int64), members, 3).numpy()
    np.testing.assert_array_equal(balanced_at(tf.range(120, 200, dtype=tf.int64), members, 3), together[120:200])
    assert not np.array_equal(balanced_at(tf.range(500, dtype=tf.int64), members, 4), together)
    # Successive passes over a class differ.
    assert not np.array_equal(together[:200], balanced_at(tf.range(2000, 2200, dtype=tf.int64), members, 3))


@pytest.mark.parametrize("classes", [2, 7])
def test_neighbours_at_shuffled_positions_are_of_one_class_as_often_as_random_pairs(classes):
    labels = np.arange(1000) % classes
    members, block = Members.of(labels), TURNS * classes
    found = shuffled(tf.range(6 * block, dtype=tf.int64), members, 3).numpy()
    for start in range(0, len(found), block):
        assert sorted(found[start : start + block]) == list(range(start, start + block))
    assert len({(found[start : start + block] % block).tobytes() for start in range(0, len(found), block)}) == 6
    pairs = labels[balanced_at(tf.constant(found), members, 3)].reshape(-1, 2)
    assert (pairs[:, 0] == pairs[:, 1]).mean() == pytest.approx((TURNS - 1) / (block - 1), abs=0.08)
