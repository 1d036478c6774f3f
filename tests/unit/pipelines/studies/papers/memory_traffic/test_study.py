import numpy as np

from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers.memory_traffic.study import KINDS, SIZES, STUDY
from tests.unit.pipelines.studies.fake import result

BYTES = {"highway": 4e6, "residual": 3e6, "residual-wide": 5e6, "plain": 2e6, "plain-wide": 3.2e6}


def results(path, **changes):
    """Results where a copy reaches 2 GB/s and a step takes twice as long as copying its bytes."""
    runs = [result(name, arm.config, 0, 0.3, path) for name, arm in STUDY.arms.items()]
    for one in runs:
        counted = (BYTES | changes)[one.arm.partition("-")[2]]
        one.run.path.mkdir(parents=True)
        np.savez(
            one.run.path / "measured.npz",
            counted=np.array(counted),
            weights=np.array(0.5e6),
            activations=np.array(1.5e6),
            seconds=np.array([9, 2, 3]) * counted / 2e9,
            bandwidth=np.array([1e9, 2e9, 0.5e9]),
        )
    return Results(runs)


def test_bytes_and_times_against_the_plain_net(tmp_path):
    small, large = STUDY.tables(results(tmp_path))
    assert small.title.endswith(SIZES["small"].title)
    assert large.title.endswith(SIZES["large"].title)
    assert small.rows[0] == ("highway", "100", "4.0", "2.00", "2.0", "75%", "4.00", "2.00", "1.0", "2.0")
    assert [row[0] for row in small.rows] == [title for title, _ in KINDS.values()]


def test_a_figure(tmp_path):
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(results(tmp_path), figures)
    assert [figure.file for figure in figures.files] == ["movement.png"]


def test_nets_that_diverged_are_left_out(tmp_path):
    lost = Results([result(name, arm.config, 0, None, tmp_path) for name, arm in STUDY.arms.items()])
    assert [table.rows for table in STUDY.tables(lost)] == [(), ()]
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(lost, figures)
    assert figures.files == []


def test_the_name_of_an_arm_contains_its_kind():
    for name, arm in STUDY.arms.items():
        assert arm.config.recipe == name
        assert name.partition("-")[2] in KINDS
