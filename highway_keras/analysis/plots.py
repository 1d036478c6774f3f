"""Plots of the results of `highway_keras.analysis`, drawn on a given Matplotlib `Figure` or `Axes`.

Colours are the colour-blind safe ones of Okabe and Ito, and viridis; signed maps run from blue through white to red.
A map has one row per layer, the first layer on top.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from highway_keras.analysis.elimination import Elimination
from highway_keras.analysis.layout import Layout
from highway_keras.analysis.lesions import Lesions
from highway_keras.analysis.statistics import LEFT, RIGHT, GateStatistics

try:
    from matplotlib import color_sequences
    from matplotlib.axes import Axes
    from matplotlib.colors import FuncNorm, Normalize, PowerNorm, to_hex
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, PercentFormatter

    _, _, _, GREEN, _, BLUE, ORANGE, PURPLE = map(to_hex, color_sequences["okabe_ito"])
except (ImportError, KeyError) as error:
    raise ImportError(
        "highway_keras.analysis.plots needs Matplotlib 3.11 or later, which is not installed. Install it: "
        "pip install 'matplotlib>=3.11'. The rest of highway_keras.analysis works without it."
    ) from error

# The colours and `MAX_MARKERS` are repeated in `pipelines.core.plotting`, which this package must not import.
MAX_MARKERS = 60  # More markers would overlap.
LAYER = "highway layer, from the input"


def layer_map(layout: Layout, gates: np.ndarray) -> np.ndarray:
    """Arranges one value per gate in a matrix with one row per layer.

    Args:
        layout: layout of the model.
        gates: values, `[gates]`.

    Returns:
        float `[layers, units of the widest layer]`, padded with NaN.

    Example:
        layer_map(found.layout, found.mean)  # [49, 50] for a net of 50 layers of 50 units
    """
    rows = list(layout.split(np.asarray(gates, "float64")).values())
    matrix = np.full((len(rows), max(layout.units)), np.nan)
    for padded, row in zip(matrix, rows, strict=True):
        padded[: len(row)] = row
    return matrix


def gate_maps(
    figure: Figure,
    layout: Layout,
    maps: Mapping[str, np.ndarray],
    signed: Collection[str] = (),
    shared: Collection[str] = (),
) -> None:
    """Draws several maps of all gates side by side, as in the paper's Figure 2.

    Args:
        figure: an empty figure.
        layout: layout of the model.
        maps: title to one value per gate, `[gates]`.
        signed: titles of maps with a colour scale centred on 0.
        shared: titles of maps that share one square-root scale from 0.

    Example:
        gate_maps(figure, found.layout, {"bias of the gate": found.bias, "mean of T": found.mean})
    """
    all_axes = np.atleast_1d(figure.subplots(1, len(maps), sharex=True, sharey=True))
    # Most gates are nearly closed: a square-root scale separates the small values.
    one_scale = PowerNorm(0.5, 0.0, max((float(maps[title].max()) for title in shared), default=1.0))
    for axes, (title, gates) in zip(all_axes, maps.items(), strict=True):
        norm = _around_zero(gates) if title in signed else one_scale if title in shared else None
        mesh = _draw_map(axes, layout, gates, cmap="RdBu_r" if title in signed else "viridis", norm=norm)
        axes.set_title(title, fontsize="medium")
        bar = figure.colorbar(mesh, ax=axes, location="bottom", aspect=25, pad=0.02)
        # A square-root scale leaves little room between the upper ticks.
        bar.locator = MaxNLocator(4 if title in shared else 5)
        bar.update_ticks()
    all_axes[0].set_ylabel(LAYER)


def class_maps(figure: Figure, statistics: GateStatistics, names: Mapping[int, str]) -> None:
    """Draws how the mean gates of some classes differ from those of all examples, as in the paper's Figure 3.

    Args:
        figure: an empty figure.
        statistics: the result of `gate_statistics` with classes.
        names: number and title of each class to draw.

    Example:
        class_maps(figure, found, {0: "zeros", 7: "sevens"})
    """
    differences = statistics.differences
    columns = min(len(names), 5)
    rows = -(-len(names) // columns)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    norm = _around_zero(differences[list(names)])
    for axes, (number, name) in zip(grid.flat, names.items(), strict=False):
        mesh = _draw_map(axes, statistics.layout, differences[number], cmap="RdBu_r", norm=norm)
        axes.set_title(name, fontsize="medium")
        axes.label_outer()
    for axes in grid.flat[len(names) :]:
        axes.set_visible(False)
    figure.supylabel(LAYER, fontsize="medium")
    figure.colorbar(mesh, ax=grid, label="mean of T of the class minus that of all", aspect=30)


def lesion_curve(figure: Figure, lesions: Lesions, others: Sequence[Lesions] = ()) -> None:
    """Draws the scores with each layer closed and those of the intact net, as in the paper's Figure 4.

    Args:
        figure: an empty figure.
        lesions: the result of `lesion_layers`.
        others: lesions of the same net trained with other seeds, drawn as thin lines with their own intact net.

    Example:
        lesion_curve(figure, lesion_layers(model, batches))
    """
    numbers = np.arange(1, len(lesions.layout.layers) + 1)
    shown = sorted(lesions.scores, key=lambda name: name != "loss")
    dotted = len(numbers) > MAX_MARKERS
    style = {"ls": "none", "marker": ".", "ms": 3} if dotted else {"marker": "o", "ms": 4, "lw": 1}
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        axes.plot(numbers, lesions.scores[name], color=BLUE, **style, label="one layer closed")
        axes.axhline(lesions.intact[name], color=BLUE, ls="--", lw=1.2, label="intact net")
        for number, other in enumerate(others):
            colour = (ORANGE, GREEN, PURPLE)[number % 3]
            axes.plot(numbers, other.scores[name], color=colour, lw=0.8, label="another seed")
            axes.axhline(other.intact[name], color=colour, ls="--", lw=0.8)
        axes.set_title(f"{name} with one layer closed", fontsize="medium")
        axes.set_xlabel(f"closed {LAYER}")
        axes.set_xlim(0.5, len(numbers) + 0.5)
        _number_layers(axes.xaxis, len(numbers))
        every = (lesions, *others)
        low = min(min(each.scores[name].min(), each.intact[name]) for each in every)
        high = max(max(each.scores[name].max(), each.intact[name]) for each in every)
        _scale_scores(axes, name, low, high)
        axes.legend()


def elimination_curve(figure: Figure, found: Elimination, spared: int) -> None:
    """Draws the scores of a net while more and more of its layers are closed.

    Args:
        figure: an empty figure.
        found: the result of `lesion_greedily`.
        spared: number of layers to mark, such as those that the net can spare.

    Example:
        elimination_curve(figure, found, found.spared(0.001, "accuracy"))
    """
    layers = len(found.layout.layers)
    style = {"marker": "o", "ms": 4, "lw": 1} if len(found.closed) <= MAX_MARKERS else {"marker": ".", "ms": 3, "lw": 1}
    shown = sorted(found.scores, key=lambda name: name != "loss")
    for axes, name in zip(np.atleast_1d(figure.subplots(1, len(shown))), shown, strict=True):
        values = found.scores[name]
        axes.plot(found.closed, values, color=BLUE, **style)
        axes.axhline(values[0], color=BLUE, ls="--", lw=1.2, label="intact net")
        axes.axvline(spared, color=ORANGE, lw=1.2, label=f"{layers - spared} of {layers} layers left")
        axes.set_title(f"{name} with layers closed", fontsize="medium")
        axes.set_xlabel("closed highway layers")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _scale_scores(axes, name, float(values.min()), float(values.max()))
        axes.legend()


def lesion_map(figure: Figure, lesions: Lesions, score: str = "loss") -> None:
    """Draws the effect of closing each unit or channel alone.

    Args:
        figure: an empty figure.
        lesions: the result of `lesion_units`.
        score: name of the score.

    Example:
        lesion_map(figure, lesion_units(model, batches))
    """
    axes = figure.subplots()
    cost = lesions.cost(score)
    mesh = _draw_map(axes, lesions.layout, cost, cmap="RdBu_r", norm=_around_zero(cost))
    axes.set_ylabel(LAYER)
    figure.colorbar(mesh, ax=axes, label=f"change of {score} with one gate closed")


def openness(axes: Axes, statistics: GateStatistics) -> None:
    """Draws the fractions of nearly closed, nearly open and other gates of each layer, with their mean.

    Args:
        axes: empty axes.
        statistics: the result of `gate_statistics`.

    Example:
        openness(figure.subplots(), gate_statistics(model, batches))
    """
    left, right, mean = (
        np.array([values.mean() for values in statistics.layout.split(array).values()])
        for array in (statistics.left, statistics.right, statistics.mean)
    )
    numbers = np.arange(1, len(mean) + 1)
    bars: dict[str, Any] = {"width": 1.0, "linewidth": 0, "align": "center"}
    axes.bar(numbers, left, color=BLUE, alpha=0.75, label=f"T below {LEFT:g}: carries", **bars)
    axes.bar(numbers, 1 - left - right, bottom=left, color="#DDDDDD", label="between", **bars)
    axes.bar(numbers, right, bottom=1 - right, color=ORANGE, alpha=0.85, label=f"T above {RIGHT:g}: transforms", **bars)
    few = len(mean) <= MAX_MARKERS
    axes.plot(numbers, mean, color="black", lw=1.2, marker="o" if few else None, ms=3, label="mean of T")
    axes.set_xlim(0.5, len(mean) + 0.5)
    axes.set_ylim(0, 1)
    axes.grid(visible=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel(LAYER)
    axes.set_ylabel("share of gates and examples; mean of T")
    _number_layers(axes.xaxis, len(mean))
    axes.legend(ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize="small", frameon=False)


def route_bands(axes: Axes, layout: Layout, signatures: np.ndarray) -> None:
    """Draws how the mean gate of each layer varies between examples: the median, and the central 50% and 90%.

    Args:
        axes: empty axes.
        layout: layout of the model.
        signatures: `[examples, layers]`, from `signatures`.

    Example:
        route_bands(figure.subplots(), found.layout, signatures(model, images))
    """
    numbers = np.arange(1, signatures.shape[1] + 1)
    low, first, median, third, high = np.percentile(signatures, (5, 25, 50, 75, 95), axis=0)
    axes.fill_between(numbers, low, high, color=BLUE, alpha=0.2, lw=0, label="90% of the examples")
    axes.fill_between(numbers, first, third, color=BLUE, alpha=0.4, lw=0, label="50%")
    axes.plot(
        numbers, median, color=BLUE, lw=1.5, marker="o" if len(numbers) <= MAX_MARKERS else None, ms=3, label="median"
    )
    axes.set_xlim(0.5, len(numbers) + 0.5)
    axes.set_ylim(bottom=0)
    axes.set_xlabel(LAYER)
    axes.set_ylabel(f"mean of T over the {layout.unit}s of the layer")
    _number_layers(axes.xaxis, len(numbers))
    axes.legend()


def _scale_scores(axes: Axes, name: str, low: float, high: float) -> None:
    """Scales the axis of a score that lies between two values."""
    if name == "accuracy":
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0 if high - low > 0.05 else 2))
    elif high > 5 * low > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
        axes.yaxis.set_major_formatter("{x:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_map(axes: Axes, layout: Layout, gates: np.ndarray, **options: Any) -> Any:
    matrix = layer_map(layout, gates)
    layers, units = matrix.shape
    # Edges at half-integers centre the cells on the layer and unit numbers.
    mesh = axes.pcolormesh(np.arange(units + 1) + 0.5, np.arange(layers + 1) + 0.5, matrix, rasterized=True, **options)
    axes.set_facecolor("#DDDDDD")  # padding of narrower layers
    axes.grid(visible=False)
    axes.set_ylim(layers + 0.5, 0.5)
    axes.set_xlabel(layout.unit)
    _number_layers(axes.yaxis, layers)
    axes.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    return mesh


def _around_zero(values: np.ndarray) -> Normalize:
    """Returns a scale symmetric about 0, which is a square-root scale if only few values are large."""
    sizes = np.abs(values[~np.isnan(values)])
    largest = float(sizes.max(initial=0)) or 1.0
    if not sizes.size or np.percentile(sizes, 90) > largest / 10:
        return Normalize(-largest, largest)
    return FuncNorm((_root, _square), -largest, largest)


def _root(values: Any) -> Any:
    return np.sign(values) * np.sqrt(np.abs(values))


def _square(values: Any) -> Any:
    return np.sign(values) * np.square(values)


def _number_layers(axis: Any, layers: int) -> None:
    if layers <= 12:
        axis.set_ticks(range(1, layers + 1))
    else:
        axis.set_major_locator(MaxNLocator(10, integer=True))
