"""What is said of an analysis is what its numbers are."""

from dataclasses import replace

import numpy as np
import pytest

from highway_keras.analysis import Layout
from highway_keras.analysis.layout import Call
from pipelines.analysis import captions
from tests.unit.pipelines.analysis.made import analysis, lesions

LABELS = ("cat", "dog")


def of_gates(found):
    return found.statistics, found.example_gates, found.example_outputs


def test_of_the_gates():
    text = captions.gates(*of_gates(analysis()))
    assert "started at -2.00 and lie at -3.00 to -1.00 (mean -2.21) now, 57% of them below their start" in text
    assert "from 0.100 in layer 1 to 0.500 in layer 2" in text
    assert "its correlation with the number of the layer is +0.24" in text
    assert text.endswith("14.3% of its gates are above one half.")


@pytest.mark.parametrize(
    ("outputs", "layer"),
    [([[0, 0], [5, 4], [5, 4], [5, 5]], 2), ([[0, 0], [1, 1], [2, 2], [3, 3]], 4), ([[1, 2]] * 4, None)],
)
def test_the_outputs_change_up_to_a_layer(outputs, layer):
    assert captions.changed(Layout((Call("a", 4, 2),)), np.ravel(outputs).astype(float)) == layer


def test_outputs_of_layers_that_differ_or_have_places_are_not_compared():
    assert captions.changed(Layout((Call("a", None, 2), Call("b", None, 3))), np.arange(5.0)) is None
    assert captions.changed(Layout((Call("a", None, 2, 9), Call("b", None, 2, 9))), np.arange(4.0)) is None
    assert captions.changed(Layout((Call("a", None, 2),)), np.arange(2.0)) is None


def test_of_how_far_they_open():
    text = captions.openness(analysis().statistics)
    assert "T is below 0.1 in 57.1% of the cases and above 0.9 in 10.0%" in text
    assert "1 of 7 gates stay below 0.1 on every example; 1 is dead" in text
    assert "add up to 0.80 of 3 layers" in text


def test_of_the_classes():
    text = captions.classes(analysis().statistics, LABELS)
    assert "unit 2 of layer 2: for 'cat' its mean is 0.200 below that of all examples" in text
    assert "the first 2 of 3 layers" in text


def test_of_some_classes():
    text = captions.some_classes(analysis().statistics, {1: "dog"})
    assert "'dog': up to +0.200 (unit 2 of layer 2), typically 0.076." in text


def test_channels_are_called_so():
    layout = Layout((Call("conv", None, 4, 25), Call("last", None, 3)))
    found = replace(lesions([1.0] * 7), layout=layout)
    for gate, name in {3: "channel 4 of layer 1", 4: "unit 1 of layer 2"}.items():
        found.scores["loss"][:] = np.where(np.arange(7) == gate, 1.5, 1.0)
        assert f"What costs most is {name}: +0.5 of loss. 1 of 7 units" in captions.units(found)


def test_a_class_without_examples_tells_nothing():
    found = analysis().statistics
    means = np.vstack([found.means[:1], np.full((1, 7), np.nan)])
    statistics = replace(found, means=means, counts=np.array([6, 0]))
    assert "nan" not in captions.classes(statistics, LABELS)


def test_of_the_lesions():
    text = captions.lesions(analysis().lesions)
    assert "Closing layer 1 costs most: the loss goes from 1 to 1.5, the accuracy from 90.00% to 50.00%" in text
    assert "1 of 3 layers raise the loss by more than 10% each, the last of them layer 1" in text
    assert "1 of 3 layers cost more than 0.1% of accuracy each, the last of them layer 1." in text
    assert "lower without 1 of them, each closed alone, by 0.02 at most" in text


def test_of_lesions_without_classes():
    text = captions.lesions(lesions([1.01, 1.0, 1.02]))
    assert "accuracy" not in text
    assert "0 of 3 layers raise the loss by more than 10% each. No layer is harmful" in text


def test_of_the_units():
    text = captions.units(lesions([1.0, 1.0, 1.0, 1.0, 1.0, 1.3, 0.9]))
    assert "What costs most is unit 2 of layer 3: +0.3 of loss. 1 of 7 units" in text


def test_of_the_routes():
    found = analysis()
    text = captions.routes(found.routes, found.classes)
    assert "differs most in layer 2, with a standard deviation of 0.100 around 0.300" in text
    assert "The class explains 100% of these differences." in text
    assert "nan" not in captions.routes(np.full((4, 3), 0.2), np.array([0, 1, 0, 1]))
    assert "class" not in captions.routes(found.routes, None)
