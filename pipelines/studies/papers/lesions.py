"""What trained nets lose when the gates of one layer are closed, or of one unit; paper, section 4.2, Figure 4.

Command     highway reproduce lesions
Nets, data, sources: `pipelines.studies.papers.analysis_nets`
Measured    seeds 0 to 2, means: on MNIST 21 of 49 layers raise the loss by more than a tenth, 6 cost more than 0.1 % of
            accuracy; on CIFAR-100 none and 14 (docs/results/lesions); Keras 3.15.1, JAX 0.10.2, float32, an Intel Xeon
            with avx512_bf16 and amx_bf16. The convolutional net, seed 0: all eight layers, 77 of 128
            channels (docs/results/lesions-mnist-conv)
"""

from pathlib import Path

import numpy as np

from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.framework.study import Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers import analysis_nets
from pipelines.studies.papers.analysis_nets import ARMS, DIFFERS, SEEDS, TITLES

OF_UNITS = 5000
"""Training images on which units are closed one by one; layers are on all."""


def measure(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """The scores on the training images with each layer closed, and on some of them with each unit or channel."""
    net, part = analysis_nets.training(run, data_dir)
    from pipelines.analysis import examples, measuring, storage

    of_units = measuring.lesions(net, examples.part(net, "train", OF_UNITS), units=True)
    return storage.of_lesions(measuring.lesions(net, part)) | storage.of_lesions(of_units, "unit_lesion")


def tabulated(results: Results) -> list[Table]:
    """How well the nets do, and what their layers are worth."""
    return [
        analysis_nets.accuracies(results),
        analysis_nets.compared(
            "What a layer is worth",
            results,
            NUMBERS,
            _numbers,
            "on the training images, each layer closed alone; the tolerances are ours. What the paper saw is section "
            "4.3, of its two dense nets",
        ),
    ]


# How each is written, and what the paper saw.
NUMBERS = {
    "highway layers": ("{:.0f}", "49 and 49"),
    "training accuracy, intact": ("{:.2%}", "-"),
    "training loss, intact": ("{:.4f}", "-"),
    "layers that raise the loss by more than 10 %": ("{:.0f}", "-"),
    "layers that cost more than 0.1 % of accuracy": ("{:.0f}", "MNIST: about the first 15; CIFAR-100: about 40"),
    "the last of these": ("{:.0f}", "about 15; about 40"),
    "the layer that costs most": ("{:.0f}", "-"),
    "accuracy without it": ("{:.1%}", "-"),
    "units or channels that raise the loss by more than 10 %": ("{:.1%}", "-"),
}


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


def drawn(results: Results, figures: Figures) -> None:
    """For each net the lesion curve, all seeds, and the map of its units."""
    frameworks.load()
    from highway_keras.analysis import plots
    from pipelines.analysis import storage
    from pipelines.analysis.figures import map_height

    for arm, runs in analysis_nets.measured(results):
        first, *others = (storage.lesions(one.measured) for one in runs)
        title, seed = TITLES[arm], runs[0].seed
        caption = f"Seed {seed}; thin lines are the other seeds." if others else ""
        with figures.figure(f"lesions_{arm}", (11, 4.6), f"Layers closed one by one: {title}", caption) as figure:
            plots.lesion_curve(figure, first, others)
        units = storage.lesions(runs[0].measured, "unit_lesion")
        size, what = (8, map_height(units.layout) + 0.6), units.layout.unit
        name = f"{what.capitalize()}s closed one by one: {title}, seed {seed}"
        with figures.figure(f"units_{arm}", size, name) as figure:
            plots.lesion_map(figure, units)


STUDY = Study(
    name="lesions",
    title="What a layer is worth",
    source="Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 4.2 and Figure 4",
    asks="what does a trained net lose when the gates of one layer are closed, so that it only carries?",
    arms=ARMS,
    seeds=SEEDS,
    differs=(*DIFFERS, f"Units and channels are closed on {OF_UNITS:,} training images, evenly spaced; layers on all."),
    tables=tabulated,
    draw=drawn,
    measure=measure,
)
