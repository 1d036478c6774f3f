"""The numbers that sum up an analysis."""

from dataclasses import replace

import numpy as np
import pytest

from highway_keras.analysis import Layout
from highway_keras.analysis.layout import Call
from pipelines.analysis import summary
from tests.unit.pipelines.analysis.known_analysis import analysis, lesions


@pytest.mark.parametrize(
    ("outputs", "layer"),
    [([[0, 0], [5, 4], [5, 4], [5, 5]], 2), ([[0, 0], [1, 1], [2, 2], [3, 3]], 4), ([[1, 2]] * 4, None)],
)
def test_the_outputs_change_up_to_a_layer(outputs, layer):
    assert summary.changed(Layout((Call("a", 4, 2),)), np.ravel(outputs).astype(float)) == layer


def test_outputs_of_different_layers_or_with_positions_are_not_compared():
    assert summary.changed(Layout((Call("a", None, 2), Call("b", None, 3))), np.arange(5.0)) is None
    assert summary.changed(Layout((Call("a", None, 2, 9), Call("b", None, 2, 9))), np.arange(4.0)) is None
    assert summary.changed(Layout((Call("a", None, 2),)), np.arange(2.0)) is None


def test_gates():
    rows = dict(summary.of_gates(analysis().statistics))
    assert rows["T"] == "0.257 on average, below 0.1 in 57.1% of cases, above 0.9 in 10.0%"
    assert rows["gates below 0.1 on every example"] == "1 of 7"
    assert rows["sum of the mean gates"] == "0.80 of 3 layers"
    assert rows["dead gates: their slope rounds to 0 in the layer's number format"] == "1 of 7"


def test_differences_of_classes():
    found = analysis().statistics
    assert summary.differences_up_to(found, 0.5) == 2
    # A class without examples does not make the sums NaN.
    means = np.vstack([found.means[:1], np.full((1, 7), np.nan)])
    assert summary.differences_up_to(replace(found, means=means, counts=np.array([6, 0])), 0.5) == 2


def test_lesions():
    rows = dict(summary.of_lesions(analysis().lesions))
    assert rows["layers that raise the loss by more than 10% when closed alone"] == "1 of 3, the last of them layer 1"
    costly = "layers that cost more than 0.1 percentage points of accuracy when closed alone"
    assert rows[costly] == "1 of 3, the last of them layer 1"
    assert rows["the layer that costs most"] == "1: loss 1 to 1.5, accuracy 0.9 to 0.5"
    assert rows["layers without which the loss is lower"] == "1"


def test_a_layer_that_costs_exactly_the_tolerance_does_not_count():
    found = replace(lesions([1.5, 1.1, 1.0], [0.97, 0.975, 0.98]), intact={"loss": 1.0, "accuracy": 0.976})
    assert (summary.last_useful(found), summary.last_useful(found, "accuracy")) == (1, 1)
    rows = dict(summary.of_lesions(found))
    costly = "layers that cost more than 0.1 percentage points of accuracy when closed alone"
    assert rows[costly] == "1 of 3, the last of them layer 1"


def test_lesions_without_classes():
    rows = dict(summary.of_lesions(lesions([1.01, 1.0, 1.02])))
    assert not any("accuracy" in name for name in rows)
    assert rows["layers that raise the loss by more than 10% when closed alone"] == "0 of 3"
    assert rows["layers without which the loss is lower"] == "0"


def test_units_and_channels_have_names():
    layout = Layout((Call("conv", None, 4, 25), Call("last", None, 3)))
    found = replace(lesions([1.0] * 7), layout=layout)
    for gate, name in {3: "channel 4 of layer 1", 4: "unit 1 of layer 2"}.items():
        found.scores["loss"][:] = np.where(np.arange(7) == gate, 1.5, 1.0)
        rows = dict(summary.of_lesions(found, "unit"))
        assert rows["the unit that costs most"] == f"{name}: loss 1 to 1.5"
        assert rows["units that raise the loss by more than 10% when closed alone"] == "1 of 7"


def test_routes():
    found = analysis()
    rows = dict(summary.of_routes(found.routes, found.classes))
    assert rows["standard deviation of a layer's mean gate over examples"].endswith("at most 0.100 in layer 2")
    assert rows["share of this variance that the class explains"] == "100%"
    assert len(list(summary.of_routes(np.full((4, 3), 0.2), np.array([0, 1, 0, 1])))) == 1
    assert len(list(summary.of_routes(found.routes, None))) == 1
