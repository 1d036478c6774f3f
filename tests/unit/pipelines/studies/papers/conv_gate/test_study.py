"""The study itself: its conditions, tables and figures, and that its settings are those of the tuning."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pipelines.studies.framework.figures import Figures
from pipelines.studies.papers.conv_gate import tuning
from pipelines.studies.papers.conv_gate.nets import EPOCHS, NETS
from pipelines.studies.papers.conv_gate.study import CONDITIONS, STUDY, make_arms
from tests.unit.pipelines.studies.papers.conv_gate.conv_gate_runs import made

DOCS = Path(__file__).parents[6] / "docs"
TUNING, STEPS = DOCS / "results" / "conv-gate-short" / "README.md", DOCS / "benchmarks" / "gate_steps.csv"


def test_a_net_with_faster_steps_trains_again_for_longer():
    times = {"highway": 6.0, "residual": 5.0, "plain": 6.0}
    arms = make_arms({name: replace(net, step=times[name]) for name, net in NETS.items()})
    assert {name: arm.config.epochs for name, arm in arms.items()} == {
        "highway": EPOCHS, "residual": EPOCHS, "plain": EPOCHS, "residual-longer": 24,
    }  # fmt: skip
    assert arms["residual-longer"].config.model == arms["residual"].config.model


def test_all_nets_train_equally_long_in_equal_time():
    _, equal_time = CONDITIONS.values()
    spent = {net: NETS[net].step * STUDY.arms[name].config.epochs for net, name in equal_time.items()}
    assert min(spent.values()) == pytest.approx(max(spent.values()), rel=0.5 / EPOCHS)


def test_each_condition_has_a_table(tmp_path):
    results = made(STUDY, tmp_path, lambda arm: None if arm == "plain" else 0.9, arms=STUDY.arms.keys() - {"residual"})
    same, equal_time = STUDY.tables(results)
    highway, residual, plain = same.rows
    seconds = f"{46 * EPOCHS * NETS['highway'].step / 1000:.0f}"
    assert highway == ("highway", "100", f"{NETS['highway'].rate:g}", "20", seconds, "90.00 (90.00 ± 0.00, n = 2)")
    assert residual == ("residual", *["-"] * 5)
    assert plain[-1] == "diverged (n = 2)"
    for row, name in zip(equal_time.rows, CONDITIONS["in equal training time"].values(), strict=True):
        assert row[3] == (str(STUDY.arms[name].config.epochs) if results.of(name) else "-")


@pytest.mark.parametrize("arms", [None, ("highway",), ()])
def test_figures_are_drawn_of_any_arms(tmp_path, arms):
    figures = Figures(tmp_path, STUDY.label)
    STUDY.draw(made(STUDY, tmp_path, lambda _: 0.9, arms=arms), figures)
    assert [(tmp_path / figure.file).stat().st_size > 5000 for figure in figures.files] == [True, True]


def test_learning_rates_are_those_of_the_published_tuning():
    rows = re.findall(r"^\| (\w+) \| .+ \| (\S+) \|$", TUNING.read_text("utf-8"), re.MULTILINE)
    rates = {net: float(rate) for net, rate in rows if net in NETS}
    assert rates == {name: net.rate for name, net in NETS.items()}


def test_times_of_a_step_are_those_of_the_published_benchmark():
    with STEPS.open(newline="") as file:
        published = {row["contestant"]: float(row["median"]) for row in csv.DictReader(file)}
    assert published == {name: net.step for name, net in NETS.items()}


def test_the_final_runs_at_a_chosen_rate_are_those_of_the_tuning():
    for name, net in NETS.items():
        assert STUDY.arms[name].config == tuning.ARMS[tuning.tried(name, net.rate)].config
