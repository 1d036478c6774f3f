import math

import numpy as np
import pytest

from pipelines.studies.papers.clusters import class_shares, clustered, mutual_information, purity, rand_index


@pytest.fixture
def heaps():
    """Rows in three heaps of 50, 30 and 20, shuffled, and the heap of each row."""
    generator = np.random.default_rng(0)
    heap = generator.permutation(np.repeat([0, 1, 2], [30, 50, 20]))
    return np.eye(3)[heap] * 10 + generator.normal(size=(100, 3)), heap


def test_heaps_are_found_and_numbered_by_size(heaps):
    rows, heap = heaps
    found = clustered(rows, 3)
    assert [set(heap[found.assigned == cluster]) for cluster in range(3)] == [{1}, {0}, {2}]
    assert found.silhouette > 0.7
    centre = rows[found.assigned == 2].mean(axis=0)
    expected = np.linalg.norm(rows[found.assigned == 2] - centre, axis=1)
    np.testing.assert_allclose(found.distances[found.assigned == 2], expected, rtol=1e-4)
    assert np.array_equal(clustered(rows, 3).assigned, found.assigned)


def test_one_cluster_has_no_silhouette(heaps):
    assert math.isnan(clustered(heaps[0], 1).silhouette)


def test_clusters_are_compared_with_classes(heaps):
    rows, heap = heaps
    assigned = clustered(rows, 3).assigned
    assert mutual_information(assigned, heap) == pytest.approx(1)
    assert purity(assigned, heap) == 1
    chance = np.random.default_rng(1).permutation(heap)
    assert abs(mutual_information(chance, heap)) < 0.1
    assert abs(rand_index(chance, heap)) < 0.1
    assert rand_index(assigned, (heap + 1) % 3) == 1


def test_shares_of_classes():
    assigned, labels = np.array([0, 0, 1, 1]), np.array([2, 1, 1, 1])
    assert class_shares(assigned, labels, 3).tolist() == [[0, 0.5, 0.5], [0, 1, 0]]
    assert purity(assigned, labels) == 0.75
