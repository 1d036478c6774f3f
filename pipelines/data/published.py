"""Draws from MNIST as it was published, so that a study can take the very images of its source.

TFDS writes examples in the order of a hash of their keys. The keys of MNIST are the places of its images in the
published files, so the order in these can be had back from the number of examples alone.
"""

import hashlib
from collections.abc import Mapping

import numpy as np

KNOWN = ("mnist",)
"""Data sets whose keys are the places in the published files."""


def places(split: str, count: int) -> np.ndarray:
    """Where TFDS has put each example of the published files.

    Args:
        split: its name, which is part of the hash.
        count: all its examples.

    Returns:
        int64 [count]: of each published example its place among those that TFDS reads.

    Example:
        labels[places("test", 10_000)][:5]  # 7, 2, 1, 0, 4
    """

    def hashed(key: int) -> bytes:
        return hashlib.md5(f"{split}{key}".encode(), usedforsecurity=False).digest()

    return np.argsort(sorted(range(count), key=hashed))


def drawn(seed: int, split: str, count: int, sizes: Mapping[str, int]) -> np.ndarray:
    """Draws examples as many a script does: one generator shuffles the training examples and then the test examples.

    Args:
        seed: of NumPy's `default_rng`.
        split: "train" or "test".
        count: how many, at most `sizes[split]`.
        sizes: all examples of both splits.

    Returns:
        Their places among those that TFDS reads, rising.

    Example:
        drawn(0, "test", 2000, {"train": 60_000, "test": 10_000})
    """
    generator = np.random.default_rng(seed)
    shuffled = {name: generator.permutation(sizes[name]) for name in ("train", "test")}
    return np.sort(places(split, sizes[split])[shuffled[split][:count]])
