"""Gates of trained nets as maps: biases, means and a single example; paper, section 4, Figure 2.

Command     highway reproduce gates
Nets, data, sources: `pipelines.studies.shared.analysis_nets`
Measured    docs/results/gates and docs/results/gates-mnist-conv
"""

from pathlib import Path

import numpy as np

from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.shared import analysis_nets
from pipelines.studies.shared.analysis_nets import TITLES, Numbers
from pipelines.studies.shared.correlation import correlation


def measure(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """Measures gate statistics over the training images, and gates and outputs for the first of them."""
    net, part = analysis_nets.training(run, data_dir)
    from pipelines.analysis import measuring, storage

    gates, outputs = measuring.example(net, part)
    return storage.of_statistics(measuring.statistics(net, part)) | {"example_gates": gates, "example_outputs": outputs}


ROWS = {
    "biases below their start": ("{:.0%}", "most, on both data sets"),
    "correlation of the biases with the number of the layer": ("{:+.2f}", "CIFAR-100: they rise"),
    "correlation of the mean of T with the number of the layer": ("{:+.2f}", "CIFAR-100: the reverse of the biases"),
    "correlation of the biases with the mean of T": ("{:+.2f}", "CIFAR-100: inverse; MNIST: less so"),
    "mean of T": ("{:.3f}", "-"),
    "T below 0.1": ("{:.1%}", "-"),
    "T above 0.9": ("{:.1%}", "-"),
    "gates above one half, one example": ("{:.1%}", "few: very sparse"),
    "layer by which 90% of the change of the outputs has happened, one example": (
        "{:.0f}", "most up to about 15 (MNIST), 40 (CIFAR-100)"
    ),
    "sum of the mean gates, in layers": ("{:.2f}", "-"),
    "dead gates": ("{:.0f}", "-"),
}  # fmt: skip
"""Name of each number, with its format and the paper's observation."""


def _numbers(result: Result) -> tuple[float | None, ...]:
    from highway_keras.analysis import open_layers
    from pipelines.analysis import storage, summary

    arrays = result.measured
    found = storage.statistics(arrays)
    bias, mean = (summary.by_layer(found.layout, gates) for gates in (found.bias, found.mean))
    layers = np.arange(len(bias))
    return (
        float(np.mean(found.bias < found.layout.spread(found.initial_bias))),
        correlation(layers, bias),
        correlation(layers, mean),
        correlation(bias, mean),
        float(found.mean.mean()),
        float(found.left.mean()),
        float(found.right.mean()),
        float(np.mean(arrays["example_gates"] > 0.5)),
        summary.changed(found.layout, arrays["example_outputs"]),
        open_layers(found),
        float(found.dead.sum()),
    )


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws, for each net, the four maps and how far its gates open."""
    frameworks.load()
    from highway_keras.analysis import plots
    from pipelines.analysis import storage
    from pipelines.analysis.figures import four_maps, map_height

    for arm, (first, *_) in analysis_nets.measured(results):
        arrays = first.measured
        found, gates, outputs = storage.statistics(arrays), arrays["example_gates"], arrays["example_outputs"]
        title, size = f"{TITLES[arm]}, seed {first.seed}", (12, map_height(found.layout) + 0.8)
        with figures.figure(f"gates_{arm}", size, f"Biases, mean gates and one example: {title}") as figure:
            four_maps(figure, found, gates, outputs)
        with figures.figure(f"openness_{arm}", (10, 4.4), f"How far the gates open: {title}") as figure:
            plots.openness(figure.subplots(), found)


STUDY = analysis_nets.study(
    "gates",
    title="Gates of trained nets",
    place="section 4 and Figure 2",
    asks="which gates open, in which layers, over all examples and for a single one?",
    numbers=Numbers(
        "What the gates do",
        ROWS,
        _numbers,
        "; correlations are over layers. The paper's observations are from section 4, on its two dense nets",
    ),
    measure=measure,
    draw=draw_figures,
)
