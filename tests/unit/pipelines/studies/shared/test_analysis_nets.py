"""Tables and figures of the studies of gates, routing and lesions, for made-up results."""

import numpy as np
import pytest

from highway_keras.analysis import GateStatistics, Layout, Lesions
from highway_keras.analysis.layout import Call
from pipelines import recipes, studies
from pipelines.analysis import storage
from pipelines.core.run import MEASURED
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.tables import SPREAD
from pipelines.studies.shared import analysis_nets
from pipelines.studies.shared.analysis_nets import ARMS
from tests.unit.pipelines.studies.fake import result

LAYERS, UNITS = 6, 4
LABEL = "short schedule, budget 0.1: 1 of 3 seeds"


def layout(arm):
    """Returns the layout of six layers with four units, which have positions in the convolutional net."""
    return Layout(tuple(Call(f"highway_{number}", None, UNITS, 9 if "conv" in arm else 1) for number in range(LAYERS)))


def statistics(arm, seed):
    """Returns biases that rise and means that fall with depth, the latter equal for all classes but one."""
    biases = np.repeat(np.linspace(-3, -1, LAYERS), UNITS)
    means = np.tile(np.repeat(np.linspace(0.5, 0.1, LAYERS), UNITS), (10, 1))
    means[7, 2 * UNITS + 1] += 0.4  # unit 2 of layer 3
    left = np.full(LAYERS * UNITS, 0.25 + seed / 100)
    return GateStatistics(
        layout(arm),
        biases,
        np.full(LAYERS, -2.0),
        np.full(10, 5),
        means,
        left,
        left / 5,
        np.full(LAYERS * UNITS, 0.2),
        ("float32",) * LAYERS,
    )


def lesions(arm, costs):
    """Returns lesions with these costs in loss, from 1, and a tenth of them in accuracy."""
    costs = np.array(costs)
    scores = {"loss": 1 + costs, "accuracy": 0.9 - costs / 10}
    return Lesions(layout(arm), None, 12, {"loss": 1.0, "accuracy": 0.9}, scores)


def arrays(name, arm, seed):
    rng = np.random.default_rng(seed)
    outputs = np.ones((LAYERS, UNITS)) * np.array([0, 8, 9, 10, 10, 10])[:, None]
    if name == "gates":
        example = {"example_gates": np.linspace(0, 1, LAYERS * UNITS), "example_outputs": outputs.ravel()}
        return storage.of_statistics(statistics(arm, seed)) | example
    if name == "routing":
        routes = {"routes": rng.random((30, LAYERS)), "route_classes": np.arange(30) % 10}
        return storage.of_statistics(statistics(arm, seed)) | routes | {"explained_of_units": np.array(0.5)}
    by_unit = lesions(arm, [0.2] * 3 + [0.0] * (LAYERS * UNITS - 3))
    by_layer = lesions(arm, [0.0, 0.5, 0.0, 0.2 + seed, 0.0, -0.1])
    return storage.of_lesions(by_layer) | storage.of_lesions(by_unit, "unit_lesion")


def made(name, path, seeds=2, diverged=()):
    """Returns results of a study, with measured arrays in their run directories."""
    runs = []
    for arm, each in ARMS.items():
        for seed in range(seeds):
            one = result(arm, each.config, seed, None if arm in diverged else 0.9, path)
            one.run.path.mkdir(parents=True)
            np.savez(one.run.path / MEASURED, allow_pickle=False, **arrays(name, arm, seed))
            runs.append(one)
    return Results(runs)


def rows(table):
    return {row[0]: row[1:] for row in table.rows}


@pytest.mark.parametrize("name", ["gates", "routing", "lesions"])
def test_the_three_studies_train_the_same_nets(name):
    study = studies.get(name)
    assert study.name == name
    assert study.arms == ARMS
    assert study.seeds == 3
    assert [arm.config for arm in ARMS.values()] == [
        recipes.get(recipe).config for recipe in ("mnist_dense_50", "cifar100_dense_50", "mnist_conv_16")
    ]
    assert all(arm.counts.test == 10_000 for arm in ARMS.values())


def test_the_gates_in_numbers(tmp_path):
    nets, table = studies.get("gates").tables(made("gates", tmp_path))
    assert nets.rows[2][1:] == ("mnist_conv_16", "100", "90.00 (90.00 ± 0.00, n = 2)", "99.43 (99.40 ± 0.03)")
    found = rows(table)
    assert found["biases below their start"][0] == "50%"
    assert found["correlation of the biases with the number of the layer"][:3] == ("+1.00",) * 3
    assert found["correlation of the biases with the mean of T"][0] == "-1.00"
    assert found["T below 0.1"][0] == "25.5% (25.0% to 26.0%)"
    assert found["gates above one half, one example"][0] == "50.0%"
    # Layer 2 makes eight tenths of the change, layer 3 one tenth. The outputs of positions are not compared.
    name = "layer by which 90% of the change of the outputs has happened, one example"
    assert found[name][:3] == ("3", "3", "-")
    assert found["sum of the mean gates, in layers"][0] == "1.81"
    assert found["dead gates"][0] == "0"


def test_the_routing_in_numbers(tmp_path):
    _, table = studies.get("routing").tables(made("routing", tmp_path))
    found = rows(table)
    assert found["largest difference of a class from the mean of T"][0] == "0.360"
    assert found["layer by which half of the squared differences is reached"][0] == "3"
    assert found["variance of single gates that the class explains"][0] == "50.0%"


def test_the_lesions_in_numbers(tmp_path):
    _, table = studies.get("lesions").tables(made("lesions", tmp_path))
    found = rows(table)
    assert found["layers that raise the loss by more than 10%"][0] == "2"
    assert found["the last layer that matters"][0] == "4"
    assert found["the layer that costs most"][0] == "3 (2 to 4)"
    assert found["units or channels that raise the loss by more than 10%"][0] == "12.5%"


@pytest.mark.parametrize("name", ["gates", "routing", "lesions"])
@pytest.mark.parametrize(
    ("seeds", "ours", "cells"), [(1, "one run each (n = 1)", "one seed"), (2, SPREAD, "mean over seeds (lowest to")]
)
def test_notes_speak_of_several_seeds_only_if_there_are_any(tmp_path, name, seeds, ours, cells):
    nets, table = studies.get(name).tables(made(name, tmp_path, seeds))
    assert nets.note.startswith(f"ours: {ours}; source: best (mean ± standard deviation over 5 runs); ")
    assert table.note.startswith(cells)


@pytest.mark.parametrize(
    ("name", "drawn", "caption"),
    [
        ("gates", ("gates", "openness"), ""),
        ("routing", ("classes", "routes"), ""),
        ("lesions", ("lesions", "units"), "Points are seed 0, thin lines the other seeds; dashed: intact nets."),
    ],
)
def test_each_net_is_drawn_unless_it_diverged(tmp_path, name, drawn, caption):
    results = made(name, tmp_path, diverged=("cifar100",))
    figures = Figures(tmp_path / "figures", LABEL)
    studies.get(name).draw(results, figures)
    arms = ("mnist", "mnist-conv")
    assert [figure.file for figure in figures.files] == [f"{what}_{arm}.png" for arm in arms for what in drawn]
    assert all((tmp_path / "figures" / figure.file).stat().st_size > 3000 for figure in figures.files)
    assert figures.files[0].caption == caption
    nets, table = studies.get(name).tables(results)
    assert nets.rows[1][3] == "diverged (n = 2)"
    assert {row[2] for row in table.rows} == {"-"}


def test_numbers_over_seeds():
    assert analysis_nets.over_seeds([1.0, 2.0, 6.0], "{:.0f}") == "3 (1 to 6)"
    assert analysis_nets.over_seeds([0.5, 0.5], "{:.0%}") == "50%"
    assert analysis_nets.over_seeds([None, None], "{:.0%}") == "-"
