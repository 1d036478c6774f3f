import numpy as np
import pytest

from pipelines.tuning import ticks


def texts(labels):
    return [text for _, text in labels]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.01, 0.5, ["0.01", "0.02", "0.05", "0.1", "0.2", "0.5"]),
        (0.001, 1.0, ["0.001", "0.01", "0.1", "1"]),
        (0.003, 0.5, ["0.003", "0.01", "0.1", "0.5"]),
        (0.0001, 1e6, ["0.0001", "0.01", "1", "100", "10000", "1e6"]),
    ],
)
def test_both_ends_of_a_logarithmic_axis_are_labelled(low, high, expected):
    assert texts(ticks.logarithmic(low, high)) == expected


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-170, -1, ["-170", "-150", "-100", "-50", "-1"]),
        (0.5, 0.99, ["0.5", "0.6", "0.7", "0.8", "0.9", "0.99"]),
        (0, 0.99, ["0", "0.2", "0.4", "0.6", "0.8", "0.99"]),
        (-0.3, 0.3, ["-0.3", "-0.2", "0", "0.2", "0.3"]),
        (-2, -2, ["-2"]),
    ],
)
def test_numbers_between_the_ends_of_an_axis_are_round(low, high, expected):
    assert texts(ticks.linear(low, high)) == expected


@pytest.mark.parametrize(
    "labels",
    [
        *(ticks.logarithmic(low, low * 10.0**span) for low in (1e-30, 0.003, 1.0) for span in (0.01, 0.7, 3, 9.5, 40)),
        *(ticks.linear(low, low + span) for low in (-7.3, 0.0, 0.1) for span in (1e-4, 0.17, 1, 33.3, 1e6)),
        *(ticks.categorical(range(count)) for count in (2, 3, 10, 11, 19, 50, 97)),
    ],
)
def test_labels_never_overlap_and_reach_both_ends(labels):
    places = np.array([place for place, _ in labels])
    assert places[0] == 0
    assert places[-1] == 1
    assert np.diff(places).min() > 0.06
    assert len(set(texts(labels))) == len(labels)


def test_a_single_choice_is_in_the_middle():
    assert ticks.categorical(["relu"]) == [(0.5, "relu")]


def test_scores_have_the_decimals_that_tell_them_apart():
    narrow = ticks.linear(0.8242, 0.8254, ticks.percents)
    assert texts(narrow) == ["82.42%", "82.45%", "82.50%", "82.54%"]
    assert texts(ticks.linear(0.1, 0.968, ticks.percents)) == ["10.0%", "20.0%", "40.0%", "60.0%", "80.0%", "96.8%"]
    assert texts(ticks.linear(0.9, 0.9, ticks.percents)) == ["90.0%"]
    losses = texts(ticks.linear(2.30251, 2.30263, ticks.significant))
    assert (losses[0], losses[-1]) == ("2.30251", "2.30263")
    assert len(set(losses)) == len(losses) > 3
