"""What is said of an analysis is what its numbers are."""

from dataclasses import replace

import numpy as np

from pipelines.analyzing import captions
from tests.unit.pipelines.analyzing.made import analysis, lesions

LABELS = ("cat", "dog")


def test_of_the_gates():
    text = captions.gates(analysis().statistics, analysis().example_gates)
    assert "started at -2.00 and lie at -3.00 to -1.00 (mean -2.21) now, 57% of them below their start" in text
    assert "from 0.100 in layer 1 to 0.500 in layer 2" in text
    assert "its correlation with the number of the layer is +0.24" in text
    assert "14% of its gates are above one half" in text


def test_of_how_far_they_open():
    text = captions.openness(analysis().statistics)
    assert "T is below 0.1 in 57.1% of the cases and above 0.9 in 10.0%" in text
    assert "1 of 7 gates stay below 0.1 on every example; 1 is dead" in text
    assert "add up to 0.80 of 3 layers" in text


def test_of_the_classes():
    text = captions.classes(analysis().statistics, LABELS)
    assert "unit 2 of layer 2: for 'cat' its mean is 0.200 below that of all examples" in text
    assert "the first 2 of 3 layers" in text


def test_a_class_without_examples_tells_nothing():
    found = analysis().statistics
    means = np.vstack([found.means[:1], np.full((1, 7), np.nan)])
    statistics = replace(found, means=means, counts=np.array([6, 0]))
    assert "nan" not in captions.classes(statistics, LABELS)


def test_of_the_lesions():
    text = captions.lesions(analysis().lesions)
    assert "Closing layer 1 costs most: the loss goes from 1 to 1.5, the accuracy from 90.00% to 50.00%" in text
    assert "1 of 3 layers raise the loss by more than 10% each, the last of them layer 1" in text
    assert "1 of 3 layers cost more than 0.1% of accuracy each" in text
    assert "lower without 1 of them, each closed alone, by 0.02 at most" in text


def test_of_lesions_without_classes():
    text = captions.lesions(lesions([1.01, 1.0, 1.02]))
    assert "accuracy" not in text
    assert "0 of 3 layers raise the loss by more than 10% each. No layer is harmful" in text


def test_of_the_units():
    text = captions.units(lesions([1.0, 1.0, 1.0, 1.0, 1.0, 1.3, 0.9]))
    assert "The unit that costs most is 2 of layer 3: +0.3 of loss. 1 of 7 units" in text


def test_of_the_routes():
    found = analysis()
    text = captions.routes(found.routes, found.classes)
    assert "differs most in layer 2, with a standard deviation of 0.100 around 0.300" in text
    assert "The class explains 100% of these differences." in text
    assert "class" not in captions.routes(found.routes, None)
