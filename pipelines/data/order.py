"""The order of examples as a stateless function of the seed.

Training reads an endless sequence of positions: step k with batches of b reads positions k*b to (k+1)*b - 1. Position p
is in epoch p // n, at index p % n of that epoch's permutation of the n examples. This lets a run resume at any step and
a batch cross the end of an epoch, which keeps all steps the same size.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

# `tf.random.experimental.index_shuffle` runs 4 rounds of its cipher. With n = 50,000, the orders of two epochs are then
# strongly correlated; with 8 rounds, no test distinguished it from NumPy's permutations.
ROUNDS = 8
# The first of the operation's three seeds, with the same value as in `index_shuffle`.
SALT = 498247692
# Turns of all classes whose positions `shuffled` permutes: neighbours are then of one class nearly as often as random
# pairs are. Of two classes, the worst case, 63 of 127 pairs are of one.
TURNS = 64


def positions(step: tf.Tensor, batch_size: int) -> tf.Tensor:
    """Returns the positions of one step, int64 [batch_size].

    Args:
        step: scalar int64, from 0.
        batch_size: examples per step.
    """
    return step * batch_size + tf.range(batch_size, dtype=tf.int64)


def examples_at(positions: tf.Tensor, count: int, seed: int) -> tf.Tensor:
    """Returns the examples at positions of the endless sequence.

    Args:
        positions: int64 [b], from 0.
        count: examples in an epoch.
        seed: seed of the permutations of all epochs.

    Returns:
        Indices of examples, int64 [b], below `count`; every index occurs once per epoch.

    Example:
        examples_at(tf.range(5000, dtype=tf.int64), 5000, seed=0)  # the first epoch
    """
    return permuted(positions % count, positions // count, count, seed)


class Members(NamedTuple):
    """The examples of each class."""

    order: tf.Tensor
    """Indices of all examples, sorted by class, int64 [n]."""
    starts: tf.Tensor
    """Where each class starts in this order, int64 [classes]; classes without examples are left out."""
    counts: tf.Tensor
    """Examples of each class, int64 [classes]."""

    @staticmethod
    def of(labels: np.ndarray) -> "Members":
        """Sorts examples by class.

        Args:
            labels: class of each example, int [n].
        """
        order = np.argsort(labels, kind="stable")
        _, starts, counts = np.unique(labels[order], return_index=True, return_counts=True)
        return Members(*(tf.constant(each, tf.int64) for each in (order, starts, counts)))


def balanced_at(positions: tf.Tensor, members: Members, seed: int) -> tf.Tensor:
    """Returns the examples at positions of an endless sequence with equally many of each class.

    Args:
        positions: int64 [b], from 0.
        members: the examples of each class.
        seed: seed of all permutations.

    Returns:
        Indices of examples, int64 [b]. Each block of as many positions as there are classes, counted from 0, has one
        example of each class; and each class shows all its examples before it repeats one.

    Example:
        balanced_at(tf.range(100, dtype=tf.int64), Members.of(labels), seed=0)
    """
    classes = len(members.counts)
    turn = positions // classes
    chosen = permuted(positions % classes, turn, classes, seed)
    counts = tf.gather(members.counts, chosen)
    # Each pass over each class has its own permutation.
    place = permuted(turn % counts, turn // counts * classes + chosen, counts, seed)
    return tf.gather(members.order, tf.gather(members.starts, chosen) + place)


def shuffled(positions: tf.Tensor, members: Members, seed: int) -> tf.Tensor:
    """Shuffles positions for `balanced_at`, in blocks of `TURNS` turns of all classes.

    Mixup and CutMix pair neighbours, and those of a turn are never of one class.

    Args:
        positions: int64 [b], from 0.
        members: the examples of each class.
        seed: seed of all permutations.

    Returns:
        Positions, int64 [b]; each block has all of its own.

    Example:
        balanced_at(shuffled(positions, members, seed=0), members, seed=0)
    """
    block = TURNS * len(members.counts)
    number = positions // block
    # Negative, because `balanced_at` counts its permutations from 0.
    return number * block + permuted(positions % block, -1 - number, block, seed)


def permuted(places: tf.Tensor, epochs: tf.Tensor, count: int | tf.Tensor, seed: int) -> tf.Tensor:
    """Applies the permutation of each (seed, epoch) to indices.

    Args:
        places: indices, int64 [b], each below `count`.
        epochs: int64 [b] or scalar; selects the permutation.
        count: length of the permutation, a scalar or [b].
        seed: seed of all permutations.

    Returns:
        int64 [b], each below `count`.
    """
    epochs = tf.broadcast_to(epochs, tf.shape(places))
    seeds = tf.stack([tf.fill(tf.shape(places), tf.constant(part, tf.int64)) for part in (SALT, seed)] + [epochs], 1)
    last = tf.cast(count, tf.int64) - 1
    return tf.raw_ops.RandomIndexShuffle(index=places, seed=seeds, max_index=last, rounds=ROUNDS)
