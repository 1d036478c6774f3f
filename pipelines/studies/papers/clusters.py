"""Clusters of rows by k-means, and their agreement with classes."""

from typing import NamedTuple

import numpy as np

SAMPLE = 2000
"""Rows on which a silhouette is computed; its cost is quadratic in their number."""
RESTARTS = 4


class Clusters(NamedTuple):
    """Rows divided into clusters."""

    assigned: np.ndarray
    """The cluster of each row, int32 `[rows]`; cluster 0 is the largest."""
    distances: np.ndarray
    """Distance of each row from the centre of its cluster, float32 `[rows]`."""
    silhouette: float
    """Mean silhouette coefficient, from -1 to 1; NaN for one cluster."""


def clustered(rows: np.ndarray, count: int) -> Clusters:
    """Clusters rows by k-means; equal rows give equal clusters.

    Args:
        rows: float `[rows, columns]`.
        count: number of clusters; at most the number of distinct rows.

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
    """Share of each class in each cluster: float `[clusters, classes]`; rows sum to 1.

    Example:
        class_shares(np.array([0, 0, 1]), np.array([2, 1, 1]), 3)  # [[0, 0.5, 0.5], [0, 1, 0]]
    """
    counts = np.zeros((assigned.max() + 1, classes))
    np.add.at(counts, (assigned, labels), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def purity(assigned: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows that belong to the most common class of their cluster."""
    pairs = np.zeros((assigned.max() + 1, labels.max() + 1), int)
    np.add.at(pairs, (assigned, labels), 1)
    return float(pairs.max(axis=1).sum() / len(labels))


def rand_index(one: np.ndarray, other: np.ndarray) -> float:
    """Adjusted Rand index of two clusterings of the same rows: 1 for equal, about 0 for unrelated ones."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(one, other))


def mutual_information(assigned: np.ndarray, labels: np.ndarray) -> float:
    """Adjusted mutual information of clusters and classes: 1 if they are the same, about 0 for chance."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, assigned))
