"""Nets at matched depth: their sizes, the numbers that they share, tables and figures."""

import pytest

import highway_keras
from pipelines import studies
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import depth_contrast, depth_hundred, depth_twins
from pipelines.studies.shared.nets import NETS
from tests.unit.pipelines.studies.fake import result

ARMS = [
    (name, arm)
    for study in ("depth-twins", "depth-hundred", "depth-routes", "data-movement")
    for name, arm in studies.get(study).arms.items()
]


def results(study, path, accuracy):
    """Returns two runs of each arm, with the accuracy as a function of its name."""
    return Results(
        result(name, arm.config, seed, accuracy(name), path, gates=[[0.1] * 100] * 3 if "highway" in name else None)
        for name, arm in study.arms.items()
        for seed in range(2)
    )


def test_all_are_trained_alike():
    own = depth_contrast.STUDY.arms["highway-30"].config
    changed = {"recipe", "model", "subset", "validation", "epochs", "batch_size"}
    for _, arm in ARMS:
        assert arm.config.model_dump(exclude=changed) == own.model_dump(exclude=changed)


def test_nets_of_the_depth_contrast_are_not_trained_again():
    for name in ("highway-30", "plain-100"):
        assert depth_twins.STUDY.arms[name] is depth_contrast.STUDY.arms[name]


@pytest.mark.parametrize("net", NETS)
def test_twins_are_as_wide_or_have_as_many_parameters_per_block(net):
    model = NETS[net].model
    count, more = (
        highway_keras.from_preset(
            model.preset, **model.model_copy(update={"depth": depth}).model_dump(exclude={"preset"}, exclude_none=True)
        ).count_params()
        for depth in (5, 6)
    )
    expected = 2 * 51 * 50 if net.startswith("highway") else 72 * 71 if net.endswith("wide") else 51 * 50
    assert more - count == expected


@pytest.mark.parametrize(
    ("study", "files"),
    [
        (depth_twins.STUDY, {"depth_sweep.png", "training_loss.png"}),
        (depth_hundred.STUDY, {"learning_curves.png", "gate_evolution.png", "final_gates.png"}),
    ],
)
def test_tables_and_figures(study, files, tmp_path):
    found = results(study, tmp_path, lambda name: 0.9 if "highway" in name else 0.11)
    first = study.tables(found)[0]
    assert [row[0] for row in first.rows] == [net.title for net in NETS.values()]
    assert "90.00 (90.00 ± 0.00, n = 2)" in first.rows[0]
    figures = Figures(tmp_path / "figures", "short schedule, budget 0.1: 1 of 3 seeds")
    study.draw(found, figures)
    assert {figure.file for figure in figures.files} == files


# The columns of `depth-hundred` include the seconds of training.
@pytest.mark.parametrize(("study", "columns"), [(depth_twins.STUDY, 2), (depth_hundred.STUDY, 3)])
def test_nets_that_diverged_are_not_drawn(study, columns, tmp_path):
    lost = results(study, tmp_path, lambda _: None)
    assert study.tables(lost)[0].rows
    cells = [cell for table in study.tables(lost) for row in table.rows for cell in row]
    assert cells.count("diverged (n = 2)") == columns * len(study.arms)
    figures = Figures(tmp_path / "figures", "")
    study.draw(lost, figures)
    assert figures.files == []
