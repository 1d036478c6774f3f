"""Which examples of a split are drawn: those held out for validation, and those of a subset."""

import numpy as np

SEED = 0
SUBSET = 1
"""Another seed than that of validation, so that a subset is no part of it by construction."""


def held_out(labels: np.ndarray, count: int, *, seed: int = SEED) -> np.ndarray:
    """Draws examples so that each class gives its share, to within one example; the same ones on every call.

    Args:
        labels: class of each training example, integers [n].
        count: how many to hold out, at most n.
        seed: another one draws others.

    Returns:
        bool [n], true for `count` examples.

    Example:
        held_out(np.array([0, 0, 1, 1]), 2).sum()  # 2: one of each class
    """
    # `random_raw` is the one part of NumPy's generators that is promised never to change.
    order = np.argsort(np.random.PCG64(seed).random_raw(len(labels)), kind="stable")
    classes, sizes = np.unique(labels, return_counts=True)
    shares, rests = np.divmod(sizes * count, len(labels))
    shares[np.argsort(-rests, kind="stable")[: count - shares.sum()]] += 1
    held = np.zeros(len(labels), bool)
    for label, share in zip(classes, shares, strict=True):
        held[order[labels[order] == label][:share]] = True
    return held


def exchanged(labels: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Which places have to be exchanged for what is held out to come last.

    Args:
        labels: class of each training example, integers [n].
        count: how many are held out.

    Returns:
        Held out places before the last `count`, and as many of the others among these: integers, rising.

    Example:
        low, high = exchanged(labels, 100)
        labels[np.r_[low, high]] = labels[np.r_[high, low]]
    """
    left = len(labels) - count
    held = held_out(labels, count)
    return np.flatnonzero(held[:left]), left + np.flatnonzero(~held[left:])


def subset(labels: np.ndarray, count: int) -> np.ndarray:
    """Draws examples to use, as `held_out` does.

    Args:
        labels: class of each example that may be used, integers [n].
        count: how many, at most n.

    Returns:
        Their places, rising.
    """
    return np.flatnonzero(held_out(labels, count, seed=SUBSET))
