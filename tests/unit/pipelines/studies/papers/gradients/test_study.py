"""Tables and figures of probed gradients."""

import numpy as np
import pytest

from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.gradients import reading
from pipelines.studies.papers.gradients.reading import BLOCKS, KINDS
from pipelines.studies.papers.gradients.study import STUDY, make_tables
from tests.unit.pipelines.studies.probed_runs import probed_results


def rows(name, seed):
    """Returns gradients that change by a factor per block, to 0 in the plain net, and Jacobians for gates of 0.1."""
    kind, blocks = name.split("-")
    numbers = range(1, int(blocks) + 1)
    fall = {"highway": 0.9, "residual": 1.1, "plain": 0.5}[kind]
    made = []
    for epoch in range(3):
        row = {"step": 46 * epoch}
        row |= {f"kernel/{block}": (1 + seed) * fall ** (int(blocks) - block) for block in numbers}
        if kind == "plain" and epoch == 2:
            row["kernel/1"] = 0.0
        row |= {f"gain/{block}": (fall - 0.4) ** (int(blocks) + 1 - block) for block in numbers}
        if kind == "highway":
            row |= {f"identity/{block}": 0.9 - 0.1 * epoch for block in numbers}
            row |= {f"diagonal/{block}": 0.91 - 0.1 * epoch for block in numbers}
            row |= {f"rest/{block}": 0.05 for block in numbers}
            row |= {f"path/{block}": 0.25 ** (int(blocks) + 1 - block) for block in numbers}
            row |= {"error": 1e-5 * (1 + seed + epoch)}
        made.append(row)
    return made


def made(path, accuracy=lambda _: 0.5, seeds=3):
    return probed_results(STUDY, path, accuracy, rows, seeds)


def test_the_nets_are_those_of_depth_contrast_and_their_residual_twins():
    import highway_keras

    for blocks in BLOCKS:
        counts = {}
        for kind in KINDS:
            config = STUDY.arms[reading.arm(kind, blocks)].config
            settings = config.model.model_dump(exclude={"preset"}, exclude_none=True)
            counts[kind] = highway_keras.from_preset(config.model.preset, **settings).count_params()
            assert config.optimizer.learning_rate == 0.005
        ends = 785 * 50 + 51 * 10
        plain = ends + blocks * 51 * 50
        assert counts == {"highway": ends + blocks * 2 * 51 * 50, "residual": plain, "plain": plain}


def test_a_net_is_the_median_of_its_seeds(tmp_path):
    results = made(tmp_path)
    found = reading.by_block(results, "plain", 10, "kernel")
    assert found.shape == (3, 10)
    np.testing.assert_allclose(found[0], 2 * 0.5 ** np.arange(9.0, -1, -1))
    np.testing.assert_allclose(reading.reach(results, "plain", 10), [0.1**10] * 3)


def test_tables(tmp_path):
    reached, scaled = make_tables(made(tmp_path))
    assert reached.rows[0] == (
        "highway, 10", "0.77", "2", "0.00098", "0.77", "2", "0.00098", "50.00 (50.00 ± 0.00, n = 3)",
    )  # fmt: skip
    assert reached.rows[2][4:7] == ("0", "2", "1e-10")
    assert scaled.rows[0] == (
        "10",
        "0.900",
        "0.910",
        "0.00098",
        "9.5e-07",
        "0.700",
        "0.710",
        "0.00098",
        "9.5e-07",
        "5e-05",
    )
    assert len(scaled.head) == len(scaled.rows[0])
    assert len(reached.head) == len(reached.rows[0])


@pytest.mark.parametrize("lost", [None, "plain", "highway"])
def test_all_figures_are_drawn(tmp_path, lost):
    results = made(tmp_path, lambda name: None if lost and name.startswith(lost) else 0.5)
    make_tables(results)
    figures = Figures(tmp_path / "figures", "short schedule")
    STUDY.draw(results, figures)
    files = ["gradients_at_start.png", "gradients_through_training.png", "all_blocks.png"]
    assert [figure.file for figure in figures.files] == [
        *files,
        *(["jacobian.png", "paths.png"] if lost != "highway" else []),
    ]
