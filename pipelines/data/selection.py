"""Selection of examples: hold-out for validation, subsets, and draws from MNIST in its published order."""

import hashlib
from collections.abc import Mapping

import numpy as np

SEED = 0
SUBSET = 1
"""Seed for subsets; it differs from the seed for validation, so that the two draws are independent."""
PUBLISHED = ("mnist",)
"""Data sets whose TFDS keys are the indices in the published files."""


def held_out(labels: np.ndarray, count: int, *, seed: int = SEED) -> np.ndarray:
    """Draws a stratified sample, exact to within one example per class and equal on every call.

    Args:
        labels: class of each training example, integers [n]. Examples with several classes, [n, classes], are drawn
            without regard to these.
        count: number of examples to draw, at most n.
        seed: selects another sample.

    Returns:
        bool [n], true for `count` examples.

    Example:
        held_out(np.array([0, 0, 1, 1]), 2).sum()  # 2: one of each class
    """
    if labels.ndim > 1:
        labels = np.zeros(len(labels), np.int64)
    # `random_raw` is the only part of NumPy's generators that is guaranteed never to change.
    order = np.argsort(np.random.PCG64(seed).random_raw(len(labels)), kind="stable")
    classes, sizes = np.unique(labels, return_counts=True)
    shares, remainders = np.divmod(sizes * count, len(labels))
    shares[np.argsort(-remainders, kind="stable")[: count - shares.sum()]] += 1
    held = np.zeros(len(labels), bool)
    for label, share in zip(classes, shares, strict=True):
        held[order[labels[order] == label][:share]] = True
    return held


def exchanged(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the swaps that move the held-out examples to the end.

    Args:
        labels: class of each training example, integers [n].
        count: number of held-out examples.

    Returns:
        Indices of held-out examples before the last `count` places, and as many indices of other examples among these
        places: integers, ascending.

    Example:
        low, high = exchanged(labels, 100)
        labels[np.r_[low, high]] = labels[np.r_[high, low]]
    """
    left = len(labels) - count
    held = held_out(labels, count)
    return np.flatnonzero(held[:left]), left + np.flatnonzero(~held[left:])


def subset(labels: np.ndarray, count: int) -> np.ndarray:
    """Draws a stratified subset as `held_out` does.

    Args:
        labels: class of each eligible example, integers [n].
        count: number of examples, at most n.

    Returns:
        Their indices, ascending.
    """
    return np.flatnonzero(held_out(labels, count, seed=SUBSET))


def published_order(split: str, count: int) -> np.ndarray:
    """Maps indices of the published files to indices in TFDS.

    TFDS sorts examples by a hash of their keys. The keys of MNIST are the indices in the published files, so the number
    of examples determines the order.

    Args:
        split: name of the split, which is part of the hash.
        count: number of all its examples.

    Returns:
        int64 [count]: the index in TFDS of each published example.

    Example:
        labels[published_order("test", 10_000)][:5]  # 7, 2, 1, 0, 4
    """

    def hashed(key: int) -> bytes:
        return hashlib.md5(f"{split}{key}".encode(), usedforsecurity=False).digest()

    return np.argsort(sorted(range(count), key=hashed))


def draw_published(seed: int, split: str, count: int, sizes: Mapping[str, int]) -> np.ndarray:
    """Draws examples like a typical script: one generator permutes the training examples, then the test examples.

    Args:
        seed: seed of NumPy's `default_rng`.
        split: "train" or "test".
        count: number of examples, at most `sizes[split]`.
        sizes: number of all examples of both splits.

    Returns:
        Their indices in TFDS, ascending.

    Example:
        draw_published(0, "test", 2000, {"train": 60_000, "test": 10_000})
    """
    generator = np.random.default_rng(seed)
    permutations = {name: generator.permutation(sizes[name]) for name in ("train", "test")}
    return np.sort(published_order(split, sizes[split])[permutations[split][:count]])
