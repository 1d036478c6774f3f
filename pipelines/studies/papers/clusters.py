"""Clusters of rows by k-means, and how far they are what the classes are."""

from typing import NamedTuple

import numpy as np

SAMPLE = 2000
"""Rows on which a silhouette is measured: its cost grows with their square."""
RESTARTS = 4


class Clusters(NamedTuple):
    """Rows that were divided into clusters."""

    assigned: np.ndarray
    """The cluster of each row, int32 `[rows]`; clusters are numbered from the largest on."""
    distances: np.ndarray
    """Of each row from the centre of its cluster, float32 `[rows]`."""
    silhouette: float
    """How much nearer a row is to its own cluster than to the next, from -1 to 1, on average; NaN for one cluster."""


def clustered(rows: np.ndarray, count: int) -> Clusters:
    """Divides rows by k-means.

    Args:
        rows: float `[rows, columns]`.
        count: clusters; no more than rows that differ.

    Returns:
        The clusters; the same for the same rows.

    Example:
        clustered(signatures(model, images, per="unit"), 10).assigned
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    rows = np.asarray(rows, "float32")
    fitted = KMeans(count, n_init=RESTARTS, random_state=0).fit(rows)
    found = fitted.labels_
    sizes = np.bincount(found, minlength=count)
    place = np.empty(count, "int32")
    place[np.argsort(-sizes, kind="stable")] = np.arange(count)
    distances = np.linalg.norm(rows - fitted.cluster_centers_[found], axis=1)
    sample = min(SAMPLE, len(rows))
    drawn = np.random.default_rng(0).permutation(len(rows))[:sample]
    several = 1 < len(np.unique(found[drawn])) < sample
    silhouette = float(silhouette_score(rows[drawn], found[drawn])) if several else float("nan")
    return Clusters(place[found], distances.astype("float32"), silhouette)


def class_shares(assigned: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Which share of each cluster each class has: float `[clusters, classes]`, each row with the sum 1.

    Example:
        class_shares(np.array([0, 0, 1]), np.array([2, 1, 1]), 3)  # [[0, 0.5, 0.5], [0, 1, 0]]
    """
    counts = np.zeros((assigned.max() + 1, classes))
    np.add.at(counts, (assigned, labels), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def purity(assigned: np.ndarray, labels: np.ndarray) -> float:
    """The share of rows that are of the commonest class of their cluster."""
    pairs = np.zeros((assigned.max() + 1, labels.max() + 1), int)
    np.add.at(pairs, (assigned, labels), 1)
    return float(pairs.max(axis=1).sum() / len(labels))


def rand_index(one: np.ndarray, other: np.ndarray) -> float:
    """The adjusted Rand index of two divisions of the same rows: 1 for the same, about 0 for unrelated ones."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(one, other))


def mutual_information(assigned: np.ndarray, labels: np.ndarray) -> float:
    """The adjusted mutual information of clusters and classes: 1 where each tells the other, about 0 for chance."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, assigned))
