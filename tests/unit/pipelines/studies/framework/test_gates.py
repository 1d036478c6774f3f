from contextlib import contextmanager

import numpy as np
import pytest
from matplotlib.figure import Figure

from pipelines.studies.framework.gates import evolution, final, told, told_against


class Figures:
    """Keeps the last figure that was drawn."""

    @contextmanager
    def figure(self, *_):
        self.last = Figure()
        yield self.last


@pytest.mark.parametrize(("highest", "scale"), [(0.2, "linear"), (0.5, "log")])
def test_gates_that_differ_by_magnitudes_have_a_logarithmic_scale(highest, scale):
    figures = Figures()
    evolution(figures, np.array([[0.01, 0.01], [0.01, highest]]), "a net")
    _, bar = figures.last.axes
    assert bar.get_yscale() == scale
    (mesh,) = figures.last.axes[0].collections
    assert mesh.get_clim() == (0.01, highest)


@pytest.mark.parametrize(("seeds", "names"), [(1, {"one seed"}), (2, {"mean over seeds", "a seed"})])
def test_the_legend_speaks_of_as_many_seeds_as_there_are(seeds, names):
    figures = Figures()
    final(figures, np.full((seeds, 3), 0.1), -2.0, "a net")
    (axes,) = figures.last.axes
    assert {text.get_text() for text in axes.get_legend().texts} == names | {"sigmoid(-2) = 0.119"}


def test_opening_and_closing_are_counted():
    said = told(np.array([[0.1, 0.1, 0.1, 0.1], [0.2, 0.1, 0.05, 0.4]]))
    assert "from 0.100 to 0.188: 2 of 4 blocks end more open than they began, 1 more closed" in said
    assert said.endswith("The first 1 blocks end at 0.200, the last 1 at 0.400; the most open is block 4, at 0.400.")


def test_gates_that_stay_nearly_closed_are_told_by_their_digits():
    said = told(np.array([[4.5e-05] * 3, [0.0001, 0.0002, 0.009]]))
    assert "from 4.5e-05 to 0.0031:" in said
    assert said.endswith("the most open is block 3, at 0.009.")


def test_the_trend_over_depth_is_what_was_measured():
    rising = np.array([[0.1, 0.2, 0.3], [0.1, 0.3, 0.5]])
    assert "the means rise (correlation with the number of the block +1.00)" in told_against(rising, -2.0)
    assert "the means fall" in told_against(rising[:, ::-1], -2.0)
    flat = told_against(np.full((2, 3), 0.1), -2.0)
    assert flat.startswith("0 of 3 blocks end above sigmoid(-2) = 0.119")
    assert "neither rise nor fall (correlation with the number of the block +0.00)" in flat
