"""Lesions: what trained nets lose when the gates of one layer or unit are closed; paper, section 4.2, Figure 4.

Command     highway reproduce lesions
Nets, data, sources: `pipelines.studies.shared.analysis_nets`
Measured    docs/results/lesions and docs/results/lesions-mnist-conv
"""

from pathlib import Path

import numpy as np

from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.shared import analysis_nets
from pipelines.studies.shared.analysis_nets import TITLES, Numbers

OF_UNITS = 5000
"""Training images used for lesions of units; lesions of layers use all."""


def measure(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """Scores all training images with each layer closed, and a part of them with each unit or channel closed."""
    net, part = analysis_nets.training(run, data_dir)
    from pipelines.analysis import examples, measuring, storage

    of_units = measuring.lesions(net, examples.part(net, "train", OF_UNITS), units=True)
    return storage.of_lesions(measuring.lesions(net, part)) | storage.of_lesions(of_units, "unit_lesion")


ROWS = {
    "highway layers": ("{:.0f}", "49 and 49"),
    "training accuracy, intact": ("{:.2%}", "-"),
    "training loss, intact": ("{:.4f}", "-"),
    "layers that raise the loss by more than 10%": ("{:.0f}", "-"),
    "layers that matter: each costs more than 0.1 percentage points of accuracy": (
        "{:.0f}", "MNIST: about the first 15; CIFAR-100: about 40"
    ),
    "the last layer that matters": ("{:.0f}", "about 15; about 40"),
    "the layer that costs most": ("{:.0f}", "-"),
    "accuracy without it": ("{:.1%}", "-"),
    "units or channels that raise the loss by more than 10%": ("{:.1%}", "-"),
}  # fmt: skip
"""Name of each number, with its format and the paper's observation."""


def _numbers(result: Result) -> tuple[float | None, ...]:
    from highway_keras.analysis import effective_depth
    from pipelines.analysis import storage, summary

    arrays = result.measured
    layers, units = storage.lesions(arrays), storage.lesions(arrays, "unit_lesion")
    limits, worst = summary.tolerances(layers), int(layers.cost("loss").argmax())
    return (
        len(layers.layout.layers),
        layers.intact["accuracy"],
        layers.intact["loss"],
        effective_depth(layers, limits["loss"]),
        effective_depth(layers, limits["accuracy"], "accuracy"),
        summary.last_useful(layers, "accuracy"),
        worst + 1,
        float(layers.scores["accuracy"][worst]),
        float(np.mean(units.cost("loss") > summary.tolerances(units)["loss"])),
    )


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws, for each net, the lesion curves of all seeds and the first seed's map of units."""
    frameworks.load()
    from highway_keras.analysis import plots
    from pipelines.analysis import storage
    from pipelines.analysis.figures import map_height

    for arm, runs in analysis_nets.measured(results):
        first, *others = (storage.lesions(one.measured) for one in runs)
        title, seed = TITLES[arm], runs[0].seed
        caption = f"Points are seed {seed}, thin lines the other seeds; dashed: intact nets." if others else ""
        with figures.figure(f"lesions_{arm}", (11, 4.6), f"Layers closed one by one: {title}", caption) as figure:
            plots.lesion_curve(figure, first, others)
        units = storage.lesions(runs[0].measured, "unit_lesion")
        size = (8, map_height(units.layout) + 0.6)
        name = f"{units.layout.unit.capitalize()}s closed one by one: {title}, seed {seed}"
        with figures.figure(f"units_{arm}", size, name) as figure:
            plots.lesion_map(figure, units)


STUDY = analysis_nets.study(
    "lesions",
    title="What a layer is worth",
    place="section 4.2 and Figure 4",
    asks="what does a trained net lose when the gates of one layer are closed, so that it only carries?",
    numbers=Numbers(
        "What a layer is worth",
        ROWS,
        _numbers,
        ", on the training images, each layer closed alone. A layer matters if closing it alone costs more than 0.1 "
        "percentage points of accuracy; the threshold is ours. The paper's observations are from section 4.2, on its "
        "two dense nets",
    ),
    measure=measure,
    draw=draw_figures,
    differs=(
        f"Lesions of units and channels use {OF_UNITS:,} training images, evenly spaced; lesions of layers use all.",
    ),
)
