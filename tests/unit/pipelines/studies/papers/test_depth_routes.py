import math

import numpy as np
import pytest

from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import depth_routes
from pipelines.studies.papers.depth_routes import (
    ARM,
    STUDY,
    TYPICAL,
    VIEWS,
    Clusters,
    class_shares,
    clustered,
    mutual_information,
    purity,
    rand_index,
)
from tests.unit.pipelines.studies.fake import result

LABELS = np.arange(60) % 3
CHANCE = np.random.default_rng(0).integers(0, 3, 60).astype("int32")


def kept(path, seed, gates=LABELS, pixels=CHANCE):
    """Writes measurements as `measure` does: by gates, clusters that are the classes; by pixels, random clusters."""
    by_view = {"gates": gates, "layers": gates, "untrained": CHANCE, "pixels": pixels}
    scores = {f"{view}/{score}": np.array(0.5) for view in VIEWS for score in ("silhouette", "explained")}
    profile = np.full((3, 30), 0.1)
    profile[0, 12] = 0.4
    path.mkdir(parents=True)
    np.savez(
        path / "measured.npz",
        labels=LABELS,
        images=np.zeros((3, TYPICAL, 28, 28, 1), np.uint8),
        profile=profile,
        **by_view,
        **scores,
    )
    return seed


def results(tmp_path, **changes):
    runs = [result(ARM, STUDY.arms[ARM].config, seed, 0.97, tmp_path, gates=[[0.1] * 30] * 3) for seed in range(2)]
    for one in runs:
        kept(one.run.path, one.seed, **changes)
    return Results(runs)


def test_a_table_of_the_clusterings(tmp_path):
    rows = {row[0]: row[1:] for row in STUDY.tables(results(tmp_path))[0].rows}
    assert rows["every gate"] == ("0.500", "0.500", "1.000", "100.0", "1.000")
    assert float(rows["pixels"][2]) < 0.1


def test_figures(tmp_path):
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(results(tmp_path), figures)
    assert [figure.file for figure in figures.files] == ["typical_images.png", "routes.png"]
    assert figures.files[0].title.endswith("seed 0")


def test_typical_images_are_the_nearest_and_too_few_leave_black():
    images = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1)
    assigned = np.array([0] * 17 + [1] * 3)
    distances = np.arange(20, 0, -1).astype("float32")
    shown = depth_routes._typical(images, Clusters(assigned, distances, 0.0))[..., 0, 0, 0]
    assert shown[0].tolist() == list(range(16, 16 - TYPICAL, -1))
    assert shown[1].tolist() == [19, 18, 17] + [0] * (TYPICAL - 3)


def test_a_net_that_diverged_is_not_drawn(tmp_path):
    lost = Results([result(ARM, STUDY.arms[ARM].config, 0, None, tmp_path)])
    assert STUDY.tables(lost)[0].rows[0][1:] == (*("diverged (n = 1)",) * 4, "-")
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(lost, figures)
    assert figures.files == []


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
