from contextlib import contextmanager

import numpy as np
import pytest
from matplotlib.figure import Figure

from pipelines.studies.framework.gates import evolution, final


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
def test_the_legend_names_the_seeds_that_were_run(seeds, names):
    figures = Figures()
    final(figures, np.full((seeds, 3), 0.1), -2.0, "a net")
    (axes,) = figures.last.axes
    assert {text.get_text() for text in axes.get_legend().texts} == names | {"sigmoid(-2) = 0.119"}
