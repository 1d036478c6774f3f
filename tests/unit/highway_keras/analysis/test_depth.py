"""How many layers of a net are used."""

import numpy as np
import pytest

from highway_keras.analysis import GateStatistics, Lesions, effective_depth, open_layers
from highway_keras.analysis.layout import Call, Layout


def test_effective_depth_counts_the_layers_that_cost_more_than_the_tolerance():
    found = Lesions(
        layout=None,
        closed=None,
        examples=1,
        intact={"loss": 1.0, "accuracy": 0.5},
        scores={"loss": np.array([1.5, 1.005, 0.5]), "accuracy": np.array([0.2, 0.499, 0.7])},
    )
    assert effective_depth(found, 0.01) == 1
    assert effective_depth(found, 0.001) == 2
    assert effective_depth(found, 0.1, "accuracy") == 1
    assert effective_depth(found, 0.0, "accuracy") == 2


def test_open_layers_add_up_however_wide_they_are():
    layout = Layout((Call("a", None, 1), Call("b", 2, 3)))
    means = np.array([[1.0, *[0.5] * 3, *[0.0, 0.0, 0.3]]])
    nothing = np.zeros(7)
    found = GateStatistics(layout, nothing, nothing, np.array([4]), means, nothing, nothing, nothing, ("float32",) * 3)
    assert open_layers(found) == pytest.approx(1 + 0.5 + 0.1)
