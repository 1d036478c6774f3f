"""The style of every figure, and how one is written.

Colours are Okabe and Ito's, which the colour-blind can tell apart, and viridis.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from pipelines.core.files import replacing

MARKED = 60  # More points than these would run into each other.
BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#666666"
PURPLE, SKY = "#CC79A7", "#56B4E9"
STYLE = {
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}


@contextmanager
def saved(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """A figure in the style of this project, written when the block ends.

    Args:
        path: of the picture.
        size: in inches.

    Yields:
        An empty figure.
    """
    # Figure without pyplot: no window system, no state shared with the user's own plots.
    with mpl.rc_context(STYLE), replacing(path) as aside:
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(aside, dpi=120, bbox_inches="tight")


def shades(count: int) -> np.ndarray:
    """Colours from dark to light that the colour-blind can tell apart, short of yellow, which is hard to see on white.

    Args:
        count: how many.

    Returns:
        RGBA, float [count, 4].
    """
    return mpl.colormaps["viridis"](np.linspace(0, 0.9, count))
