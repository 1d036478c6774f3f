"""A thousand layers: measured accuracies next to those of earlier trials."""

import pytest

from pipelines import recipes
from pipelines.core.frozen import flat
from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers import thousand
from pipelines.studies.papers.thousand import BIASES, STUDY
from tests.unit.pipelines.studies.probed_runs import probed_results

# Steps per epoch in the fake record.
STEPS = 46


def rows(name, seed):
    """Returns a row per half epoch; the accuracy rises by 0.1 per epoch, and is 0.01 higher for the second seed."""
    return [
        {"step": half * STEPS // 2, "test_accuracy": 0.1 + 0.05 * half + 0.01 * seed, "test_loss": 2.3 - 0.1 * half}
        for half in range(2 * 4 + 1)
    ]


def made(path, accuracy=lambda _: 0.5, seeds=2):
    gates = [[1e-5, 1e-5, 1e-5], [1e-5, 2e-5, 1e-5], [2e-5, 4e-3, 1e-6]]
    return probed_results(STUDY, path, accuracy, rows, seeds, gates=gates)


def test_the_nets_are_those_of_the_recipe():
    recipe = flat(recipes.get("mnist_dense_1000").config)
    for bias in BIASES:
        config = flat(STUDY.arms[thousand.arm(bias)].config)
        differing = {field for field, value in config.items() if value != recipe[field]}
        assert differing == {"recipe", "model.transform_bias", "precision"}
        assert config["model.transform_bias"] == bias


def test_tables_have_the_earlier_trials_next_to_the_results(tmp_path):
    first, last = thousand.make_tables(made(tmp_path))
    assert first.head == ("gate bias", *(f"{what}" for n in (1, 2, 3) for what in (f"after {n}", "earlier trial")))
    assert first.rows[0] == (
        "-20", "(20.50 ± 0.71, n = 2)", "92.3", "(30.50 ± 0.71, n = 2)", "93.9", "(40.50 ± 0.71, n = 2)", "94.9",
    )  # fmt: skip
    assert first.rows[-1][2::2] == ("chance",) * 3
    assert last.rows[0] == ("-20", "50.00 (50.00 ± 0.00, n = 2)", "about 95", "0.500")
    assert [row[2] for row in last.rows[1:]] == ["-", "-", "-"]


def test_one_run_has_no_mean(tmp_path):
    first, _ = thousand.make_tables(made(tmp_path, seeds=1))
    assert first.rows[0] == ("-20", "20.00 (n = 1)", "92.3", "30.00 (n = 1)", "93.9", "40.00 (n = 1)", "94.9")
    assert first.note.startswith("one run each (n = 1); ")


@pytest.mark.parametrize("lost", [(), ("bias-10",), tuple(STUDY.arms)])
def test_all_figures_are_drawn_for_nets_that_did_not_diverge(tmp_path, lost):
    figures = Figures(tmp_path / "figures", "short schedule")
    results = made(tmp_path, lambda name: None if name in lost else 0.5)
    first, last = thousand.make_tables(results)
    assert [row[1] for row in first.rows] == [
        "diverged (n = 2)" if thousand.arm(bias) in lost else "(20.50 ± 0.71, n = 2)" for bias in BIASES
    ]
    assert ("diverged (n = 2)" in {row[1] for row in last.rows}) == bool(lost)
    STUDY.draw(results, figures)
    files = ["training.png", "gates_over_depth.png", "gate_evolution.png"]
    assert [figure.file for figure in figures.files] == files[: max(0, 3 - len(lost))]
