"""The figures of an analysis."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from highway_keras.analysis import Elimination, GateStatistics, Layout, plots
from pipelines.analysis.measuring import Analysis
from pipelines.core.class_names import class_names
from pipelines.core.plotting import saved

ALL_CLASSES = 10  # If there are more, only two are drawn, as in the paper.
BIAS, MEAN, GATE, OUTPUT = "bias of the gate", "mean of T", "T, one example", "output, one example"


def draw(analysis: Analysis, folder: Path, title: str) -> None:
    """Draws all figures of an analysis.

    Args:
        analysis: the measurements.
        folder: folder for the files.
        title: run and data, printed above each figure.
    """
    height = map_height(analysis.layout)
    with saved(folder / "gates.png", (12, height + 0.8)) as figure:
        four_maps(figure, analysis.statistics, analysis.example_gates, analysis.example_outputs)
        figure.suptitle(title)
    with saved(folder / "openness.png", (10, 4.2)) as figure:
        plots.openness(figure.subplots(), analysis.statistics)
        figure.suptitle(title)
    if analysis.whole.labels:
        names = drawn_classes(analysis.statistics, class_names(analysis.whole.labels))
        rows = -(-len(names) // 5)
        with saved(folder / "classes.png", (2.0 + 2.0 * min(len(names), 5), 0.8 + rows * 0.75 * height)) as figure:
            plots.class_maps(figure, analysis.statistics, names)
            figure.suptitle(title)
    with saved(folder / "lesions.png", (11, 4.2)) as figure:
        plots.lesion_curve(figure, analysis.lesions)
        figure.suptitle(title)
    if analysis.unit_lesions:
        with saved(folder / "units.png", (8, height + 0.4)) as figure:
            plots.lesion_map(figure, analysis.unit_lesions)
            figure.suptitle(title)
    with saved(folder / "routes.png", (10, 4.2)) as figure:
        plots.route_bands(figure.subplots(), analysis.layout, analysis.routes)
        figure.suptitle(f"{title.rpartition(',')[0]}, {analysis.routed.split}")


def draw_elimination(path: Path, found: Elimination, spared: int, title: str) -> None:
    """Draws the scores of a net while its layers were closed; see `highway_keras.analysis.plots.elimination_curve`."""
    with saved(path, (11, 4.2)) as figure:
        plots.elimination_curve(figure, found, spared)
        figure.suptitle(title)


def map_height(layout: Layout) -> float:
    """Height of a map, in inches."""
    return float(np.clip(1.6 + 0.11 * len(layout.layers), 3.2, 7.0))


def four_maps(figure: Figure, found: GateStatistics, gates: np.ndarray, outputs: np.ndarray) -> None:
    """Draws the four maps of the paper's Figure 2.

    Args:
        figure: an empty figure.
        found: the result of `gate_statistics`.
        gates: T for one example, `[gates]`.
        outputs: outputs of the layers for this example, `[gates]`.
    """
    maps = {BIAS: found.bias, MEAN: found.mean, GATE: gates, OUTPUT: outputs}
    plots.gate_maps(figure, found.layout, maps, signed=(OUTPUT,), shared=(MEAN, GATE))


def drawn_classes(found: GateStatistics, labels: Sequence[str]) -> dict[int, str]:
    """Returns all classes, or the two whose gates differ most from the mean if there are many."""
    if len(labels) <= ALL_CLASSES:
        return dict(enumerate(labels))
    strength = np.nan_to_num(np.square(found.differences)).mean(axis=1)
    return {int(number): labels[number] for number in sorted(np.argsort(strength)[-2:])}
