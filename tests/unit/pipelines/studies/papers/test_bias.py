"""The map of gate biases: arms, tables and figures."""

from math import nan

import pytest

from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.papers import bias
from pipelines.studies.papers.bias import ALONE, BIASES, DEPTHS, STUDY
from tests.unit.pipelines.studies.fake import result

ARMS = {ALONE: (1, None), **{bias.arm(depth, value): (depth, value) for depth in DEPTHS for value in BIASES}}


def score(depth, value):
    """Returns the accuracy of a shallow net for low biases and chance for high ones, from 0 on in deep nets."""
    if value is None or value <= -10:
        return 0.92
    return 0.11 if value > 2 or (value >= 0 and depth > 30) else 0.96


def made(path, accuracy, seeds=2):
    return Results(
        result(
            name,
            arm.config,
            seed,
            accuracy(*ARMS[name]),
            path,
            losses=(2.3, 1 - (accuracy(*ARMS[name]) or 0)),
            gates=None if ARMS[name][1] is None else [[0.1, 0.3], [0.2, 0.4], [0.4, 0.6]],
        )
        for name, arm in STUDY.arms.items()
        for seed in range(seeds)
    )


def test_the_arms_are_the_map_and_the_layer_alone():
    assert list(STUDY.arms) == list(ARMS)
    assert {name: (arm.config.model.depth, arm.config.model.transform_bias) for name, arm in STUDY.arms.items()} == ARMS
    assert {arm.config.model.activation for arm in STUDY.arms.values()} == {"relu"}


def test_the_map_distinguishes_diverged_nets_from_those_not_run(tmp_path):
    lost, left, whole = (bias.arm(10, value) for value in BIASES[:3])
    known = made(tmp_path, lambda _, value: None if value == BIASES[0] else 0.96)
    results = Results(one for one in known.all if one.arm != left)
    written = [bias.cell(results, name, value, ".1f") for name, value in ((lost, nan), (left, nan), (whole, 96.0))]
    assert written == ["diverged", "-", "96.0"]


def test_tables_have_every_net(tmp_path):
    accuracy, loss = bias.make_tables(made(tmp_path, score))
    assert accuracy.head == ("layers", *(f"bias {value:g}" for value in BIASES))
    assert accuracy.rows[0][1] == "92.00 (92.00 ± 0.00, n = 2)"
    assert accuracy.rows[-1] == ("1, no gates", "92.00 (92.00 ± 0.00, n = 2)", *("-",) * 7)
    assert [row[-1] for row in loss.rows] == ["0.890"] * 4 + ["-"]


@pytest.mark.parametrize("most", [-20, 10])
def test_all_figures_are_drawn_for_nets_that_did_not_diverge(tmp_path, most):
    def accuracy(depth, value):
        return None if value is not None and value > most else score(depth, value)

    figures = Figures(tmp_path / "figures", "short schedule")
    STUDY.draw(made(tmp_path, accuracy), figures)
    assert [figure.file for figure in figures.files] == ["bias_map.png", "training.png", "gates.png"]


def test_the_tables_report_nets_that_all_diverged(tmp_path):
    results = made(tmp_path, lambda *_: None)
    assert [table.rows[0][1] for table in bias.make_tables(results)] == ["diverged (n = 2)"] * 2
    figures = Figures(tmp_path / "figures", "")
    STUDY.draw(results, figures)
    assert figures.files == []
