"""Colours for lines that follow one another, such as depths."""

import matplotlib as mpl
import numpy as np


def shades(count: int) -> np.ndarray:
    """Colours from dark to light that the colour-blind can tell apart, short of yellow, which is hard to see on white.

    Args:
        count: how many.

    Returns:
        RGBA, float [count, 4].
    """
    return mpl.colormaps["viridis"](np.linspace(0, 0.9, count))
