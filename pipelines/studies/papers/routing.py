"""Gates by class: differences between classes, and routes of single examples; paper, section 4.1, Figure 3.

Command     highway reproduce routing
Nets, data, sources: `pipelines.studies.shared.analysis_nets`
Measured    docs/results/routing and docs/results/routing-mnist-conv
"""

from pathlib import Path

import numpy as np

from pipelines.core import frameworks
from pipelines.core.run import Run
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.shared import analysis_nets
from pipelines.studies.shared.analysis_nets import TITLES, Numbers

SHOWN = {"mnist": (0, 7), "mnist-conv": (0, 7), "cifar100": (0, 1)}
"""The classes that the paper shows."""
ROUTED = 5000
"""Training images whose routes are measured individually."""


def measure(run: Run, data_dir: Path | None) -> dict[str, np.ndarray]:
    """Measures gate statistics for each class over the training images, and the routes of some images."""
    net, part = analysis_nets.training(run, data_dir)
    from highway_keras.analysis import explained_by_class, signatures
    from pipelines.analysis import examples, measuring, storage

    x, y = (np.concatenate(all_of) for all_of in zip(*examples.part(net, "train", ROUTED).batches, strict=True))
    size, classes = examples.batch_size(net.layout), y.argmax(axis=1)
    of_units = signatures(net.model, x, per="unit", batch_size=size)
    return storage.of_statistics(measuring.statistics(net, part)) | {
        "routes": signatures(net.model, x, batch_size=size),
        "route_classes": classes,
        "explained_of_units": np.array(explained_by_class(of_units, classes)),
    }


ROWS = {
    "largest difference of a class from the mean of T": ("{:.3f}", "-"),
    "typical difference, root of the mean square": ("{:.4f}", "-"),
    "layer by which half of the squared differences is reached": (
        "{:.0f}", "MNIST: much within the first 15; CIFAR-100: sparser, over all layers"
    ),
    "layer by which 90% of them is reached": ("{:.0f}", "-"),
    "variance of single gates that the class explains": ("{:.1%}", "-"),
    "variance of the layers' mean gates that it explains": ("{:.1%}", "-"),
}  # fmt: skip
"""Name of each number, with its format and the paper's observation."""


def _numbers(result: Result) -> tuple[float | None, ...]:
    from highway_keras.analysis import explained_by_class
    from pipelines.analysis import storage, summary

    arrays = result.measured
    found = storage.statistics(arrays)
    differences = np.nan_to_num(found.differences)
    return (
        float(np.abs(differences).max()),
        float(np.sqrt(np.square(differences).mean())),
        summary.differences_up_to(found, 0.5),
        summary.differences_up_to(found, 0.9),
        float(arrays["explained_of_units"]),
        explained_by_class(arrays["routes"], arrays["route_classes"]),
    )


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws, for each net, the differences of two classes and the routes of single examples."""
    frameworks.load()
    from highway_keras.analysis import plots
    from pipelines.analysis import storage
    from pipelines.analysis.figures import map_height

    for arm, (first, *_) in analysis_nets.measured(results):
        arrays, labels = first.measured, first.run.record.data.labels
        found, title = storage.statistics(arrays), f"{TITLES[arm]}, seed {first.seed}"
        names = {number: labels[number] for number in SHOWN[arm]}
        size = (8.4, map_height(found.layout) + 0.8)
        with figures.figure(f"classes_{arm}", size, f"Gates of two classes: {title}") as figure:
            plots.class_maps(figure, found, names)
        with figures.figure(f"routes_{arm}", (10, 4.4), f"Routes of single examples: {title}") as figure:
            plots.route_bands(figure.subplots(), found.layout, arrays["routes"])


STUDY = analysis_nets.study(
    "routing",
    title="Gates by class",
    place="section 4.1 and Figure 3",
    asks="do gates open for some classes more than for others?",
    numbers=Numbers(
        "How the gates of classes differ",
        ROWS,
        _numbers,
        f"; variances are over {ROUTED:,} training images. The paper's observations are from section 4.1, on two "
        "classes of each data set",
    ),
    measure=measure,
    draw=draw_figures,
)
