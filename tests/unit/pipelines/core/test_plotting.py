"""The style of the figures, part of which the library's plots repeat."""

import subprocess
import sys

import pytest

from highway_keras.analysis import plots
from pipelines.core import plotting


@pytest.mark.parametrize("name", ["BLUE", "GREEN", "MAX_MARKERS", "ORANGE", "PURPLE"])
def test_the_library_draws_in_the_same_style(name):
    assert getattr(plots, name) == getattr(plotting, name)


def test_figures_can_be_drawn_without_a_framework():
    code = "import sys, pipelines.core.plotting; print({'highway_keras', 'keras'} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "set()\n"
