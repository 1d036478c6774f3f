import numpy as np

from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import depth_routes
from pipelines.studies.papers.clusters import Clusters
from pipelines.studies.papers.depth_routes import ARM, STUDY, TYPICAL, VIEWS
from tests.unit.pipelines.studies.fake import result

LABELS = np.arange(60) % 3
CHANCE = np.random.default_rng(0).integers(0, 3, 60).astype("int32")


def kept(path, seed, gates=LABELS, pixels=CHANCE):
    """Writes what `measure` would: clusters by gates that are the classes, and random clusters by pixels."""
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
    assert STUDY.tables(lost)[0].rows[0][1:] == ("-",) * 5
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(lost, figures)
    assert figures.files == []
