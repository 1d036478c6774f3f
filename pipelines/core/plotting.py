"""The style of every figure: palette, axes, legends, heat maps and writing to a file.

Colours are Okabe and Ito's, safe for colour-blind readers, and viridis.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, NullLocator, PercentFormatter

from pipelines.core.class_names import families
from pipelines.core.files import replacing

# `highway_keras.analysis.plots` repeats these values: the library must not import this program, nor this module the
# library, which imports Keras. A test holds them equal.
MAX_MARKERS = 60  # More would overlap.
_, AMBER, SKY, GREEN, _, BLUE, ORANGE, PURPLE = map(to_hex, mpl.color_sequences["okabe_ito"])
GREY = "#666666"
STYLE = {
    "font.family": families(),
    "font.size": 11,
    "axes.titlesize": 12,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
}
SAVED_STYLE = {**STYLE, "savefig.dpi": 120, "savefig.bbox": "tight"}


@contextmanager
def saved(path: Path, size: tuple[float, float], style: Mapping[str, Any] = SAVED_STYLE) -> Iterator[Any]:
    """Yields an empty figure and writes it when the block ends.

    Args:
        path: path of the image file; its suffix determines the format.
        size: size in inches.
        style: Matplotlib's parameters; by default those of the project's plots.
    """
    # Without pyplot, no window system is needed and no state is shared with the user's own plots.
    with mpl.rc_context(dict(style)), replacing(path) as aside:
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        figure.savefig(aside)


def shades(count: int) -> np.ndarray:
    """Returns colours from dark to light, without viridis's yellow, hard to see on white: RGBA, float [count, 4]."""
    return mpl.colormaps["viridis"](np.linspace(0, 0.9, count))


def legend(figure: Any, **options: Any) -> None:
    """Adds one legend with the labels of all panels, each once; on the right, unless `options` say otherwise."""
    handles: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if handles:
        options = {"loc": "outside right center", "fontsize": 9, **options}
        figure.legend(list(handles.values()), list(handles), **options)


def whole_ticks(axis: Any, most: int = 8) -> None:
    """Limits the number of ticks of an axis and puts them at whole numbers, with commas between thousands."""
    axis.set_major_locator(MaxNLocator(most, integer=True, min_n_ticks=1))
    axis.set_major_formatter("{x:,.0f}")


def log_ticks(axis: Any, form: Any = "{x:,g}", fine: float = 500.0) -> None:
    """Makes an axis logarithmic, with plain numbers at 1, 2 and 5, or at powers of ten where these would collide.

    Args:
        axis: an axis whose data are already drawn.
        form: format of the numbers.
        fine: ratio of the axis ends up to which 2 and 5 are labelled too.
    """
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < fine * low else (1,)))
    axis.set_major_formatter(form)
    axis.set_minor_formatter(NullFormatter())


def loss_axis(axes: Any) -> None:
    """Makes the vertical axis logarithmic if its data span more than a factor of five."""
    low, high = axes.dataLim.intervaly
    if high > 5 * low > 0:
        log_ticks(axes.yaxis)


def listed_ticks(axis: Any, values: Sequence[float]) -> None:
    """Makes an axis logarithmic, with ticks only at given values."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    axis.set_ticks(values, [f"{value:,g}" for value in values])
    axis.set_minor_locator(NullLocator())


def share_axis(axes: Any) -> None:
    """Makes the vertical axis show shares from 0 to 100%."""
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))


def heat_map(axes: Any, values: np.ndarray, *, first: tuple[int, int] = (1, 1), **options: Any) -> Any:
    """Draws numbers as colours, in cells around whole numbers.

    Args:
        axes: where to draw.
        values: float [rows, columns]; row 0 is at the bottom.
        first: numbers of the first row and the first column.
        options: options of `pcolormesh`.

    Returns:
        The mesh, for a colour bar.
    """
    rows, columns = (np.arange(size + 1) + start - 0.5 for size, start in zip(values.shape, first, strict=True))
    axes.grid(visible=False)
    return axes.pcolormesh(columns, rows, values, **{"cmap": "viridis", **options})
