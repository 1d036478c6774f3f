"""Which training examples are held out for validation."""

import numpy as np

SEED = 0


def held_out(labels: np.ndarray, count: int) -> np.ndarray:
    """Draws examples so that each class gives its share, to within one example; the same ones on every call.

    Args:
        labels: class of each training example, integers [n].
        count: how many to hold out, at most n.

    Returns:
        bool [n], true for `count` examples.

    Example:
        held_out(np.array([0, 0, 1, 1]), 2).sum()  # 2: one of each class
    """
    # `random_raw` is the one part of NumPy's generators that is promised never to change.
    order = np.argsort(np.random.PCG64(SEED).random_raw(len(labels)), kind="stable")
    classes, sizes = np.unique(labels, return_counts=True)
    shares, rests = np.divmod(sizes * count, len(labels))
    shares[np.argsort(-rests, kind="stable")[: count - shares.sum()]] += 1
    held = np.zeros(len(labels), bool)
    for label, share in zip(classes, shares, strict=True):
        held[order[labels[order] == label][:share]] = True
    return held
