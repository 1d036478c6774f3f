"""Pruning a run: where it ends, and its table."""

from pathlib import Path

import numpy as np
import pytest

from highway_keras.analysis import Elimination
from pipelines.analysis.prune import _is_useless, _refusal, _rows
from tests.unit.pipelines.analysis.known_analysis import LAYOUT


@pytest.mark.parametrize(
    ("accuracy", "tolerance", "useless"),
    [(0.81, 0.0, False), (0.79, 0.0, True), (0.79, 0.001, True), (0.6, 0.3, False), (0.59, 0.3, True)],
)
def test_layers_are_closed_down_to_a_useless_net_or_as_far_as_is_tolerated(accuracy, tolerance, useless):
    assert _is_useless({"accuracy": 0.9, "loss": 0.1}, {"accuracy": accuracy, "loss": 1.0}, tolerance) == useless


def test_small_losses_keep_their_digits_in_the_table():
    scores = {"loss": np.array([1.234567891e-5, 0.25])}
    found = Elimination(LAYOUT, (2, 0), np.array([0, 2]), 12, scores)
    assert _rows(found) == [
        ["closed", "loss", "layers"],
        [0, "1.23457e-05", ""],
        [2, "0.25", "last highway_01"],
    ]


def test_a_loss_that_is_no_number_is_the_reason_for_a_refusal():
    found = Elimination(LAYOUT, (2,), np.array([0, 1]), 12, {"loss": np.array([np.nan, np.nan])})
    assert _refusal(Path("runs/broken"), found, "loss", 0.1).startswith("the loss of runs/broken is not a number")
