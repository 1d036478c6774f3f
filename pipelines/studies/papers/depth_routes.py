"""Clusters of the routes that examples take through the gates: an open question of the NumPy study.

Command     highway reproduce depth-routes
Net         the highway net of 30 blocks of depth-contrast
Data        MNIST; 5,000 training images are held out, and the routes of these are clustered
Published   nothing
Sources     the training is that of depth-contrast; using all images instead of its subset, and holding some out, is
            our choice
Measured    docs/results/depth-routes
"""

from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np

from pipelines.core.config import Provenance, Subset
from pipelines.core.plotting import heat_map, whole_ticks
from pipelines.core.run import Run, load_model
from pipelines.studies.framework import tables
from pipelines.studies.framework.curves import BLOCK
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import MNIST, Arm, Counts, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.shared import numpy_study

ARM = numpy_study.arm("highway", numpy_study.SHOWN)
HELD_OUT = 5000
"""Training images whose routes are clustered."""
CLUSTERS = 10
"""The number of classes, chosen before anything was measured."""
SAMPLE = 2000
"""Rows on which a silhouette is computed; its cost is quadratic in their number."""
RESTARTS = 4
"""Starts of k-means; the best one counts."""
TYPICAL = 12
"""Images shown per cluster: those nearest to its centre."""
VIEWS = {
    "gates": "every gate",
    "layers": "mean gate of each block",
    "untrained": "every gate, before training",
    "pixels": "pixels",
}
"""Clustered views; the last two are baselines without training."""


class Clusters(NamedTuple):
    """Rows divided into clusters."""

    assigned: np.ndarray
    """The cluster of each row, int32 `[rows]`; cluster 0 is the largest."""
    distances: np.ndarray
    """Distance of each row from the centre of its cluster, float32 `[rows]`."""
    silhouette: float
    """Mean silhouette coefficient, from -1 to 1; NaN for one cluster."""


def clustered(rows: np.ndarray, count: int) -> Clusters:
    """Clusters rows by k-means; equal rows give equal clusters.

    Args:
        rows: float `[rows, columns]`.
        count: number of clusters; at most the number of distinct rows.

    Example:
        clustered(signatures(model, images, per="unit"), 10).assigned
    """
    from sklearn.cluster import KMeans
    from sklearn.metrics import silhouette_score

    rows = np.asarray(rows, "float32")
    fitted = KMeans(count, n_init=RESTARTS, random_state=0).fit(rows)
    found = fitted.labels_
    sizes = np.bincount(found, minlength=count)
    place = np.empty(count, "int32")
    place[np.argsort(-sizes, kind="stable")] = np.arange(count)
    distances = np.linalg.norm(rows - fitted.cluster_centers_[found], axis=1)
    sample = min(SAMPLE, len(rows))
    drawn = np.random.default_rng(0).permutation(len(rows))[:sample]
    several = 1 < len(np.unique(found[drawn])) < sample
    silhouette = float(silhouette_score(rows[drawn], found[drawn])) if several else float("nan")
    return Clusters(place[found], distances.astype("float32"), silhouette)


def class_shares(assigned: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """Share of each class in each cluster: float `[clusters, classes]`; rows sum to 1.

    Example:
        class_shares(np.array([0, 0, 1]), np.array([2, 1, 1]), 3)  # [[0, 0.5, 0.5], [0, 1, 0]]
    """
    counts = np.zeros((assigned.max() + 1, classes))
    np.add.at(counts, (assigned, labels), 1)
    return counts / counts.sum(axis=1, keepdims=True)


def purity(assigned: np.ndarray, labels: np.ndarray) -> float:
    """Share of rows that belong to the most common class of their cluster."""
    pairs = np.zeros((assigned.max() + 1, labels.max() + 1), int)
    np.add.at(pairs, (assigned, labels), 1)
    return float(pairs.max(axis=1).sum() / len(labels))


def rand_index(one: np.ndarray, other: np.ndarray) -> float:
    """Adjusted Rand index of two clusterings of the same rows: 1 for equal, about 0 for unrelated ones."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(one, other))


def mutual_information(assigned: np.ndarray, labels: np.ndarray) -> float:
    """Adjusted mutual information of clusters and classes: 1 if they are the same, about 0 for chance."""
    from sklearn.metrics import adjusted_mutual_info_score

    return float(adjusted_mutual_info_score(labels, assigned))


def measured(run: Run, data_dir: Path | None) -> Mapping[str, np.ndarray]:
    """Clusters the routes of held-out images through a trained net.

    Args:
        run: a trained run.
        data_dir: folder of prepared data.

    Returns:
        `labels`, `[images]`. For each view: `VIEW`, the cluster of each image; `VIEW/silhouette`; and
        `VIEW/explained`, the share of the variance that is between classes. For the clusters of the view "gates":
        `images`, those nearest to each centre, uint8 `[clusters, TYPICAL, h, w, c]`, black where a cluster has fewer;
        and `profile`, the mean gates by block, `[clusters, blocks]`.
    """
    from pipelines.core import frameworks

    frameworks.load()
    from highway_keras.analysis import explained_by_class, signatures
    from pipelines.data import batches, preprocess, sources
    from pipelines.training.net import build

    config = run.config
    examples = sources.load(config.data, "validation", data_dir, config.validation, config.subset)
    # MNIST is small enough to be in memory.
    assert isinstance(examples, sources.Examples)
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    read = batches.evaluation(examples, fitted, batch_size=500, classes=0).as_numpy_iterator()
    x = np.concatenate([images for images, _ in read])
    net = load_model(run)
    views = {
        "gates": signatures(net, x, per="unit"),
        "layers": signatures(net, x, per="layer"),
        # The seed reproduces the initial weights.
        "untrained": signatures(build(config, info, run.record.precision.policy), x, per="unit"),
        "pixels": x.reshape(len(x), -1),
    }
    arrays: dict[str, np.ndarray] = {"labels": np.asarray(examples.labels)}
    for view, rows in views.items():
        found = clustered(rows, min(CLUSTERS, len(rows)))
        arrays[view] = found.assigned
        arrays[f"{view}/silhouette"] = np.array(found.silhouette)
        arrays[f"{view}/explained"] = np.array(explained_by_class(rows, arrays["labels"]))
        if view == "gates":
            arrays["images"] = _typical(examples.images, found)
            members = [views["layers"][found.assigned == cluster] for cluster in range(found.assigned.max() + 1)]
            arrays["profile"] = np.array([rows.mean(axis=0) for rows in members])
    return arrays


def _typical(images: np.ndarray, found: Clusters) -> np.ndarray:
    shown = np.zeros((found.assigned.max() + 1, TYPICAL, *images.shape[1:]), np.uint8)
    for cluster, row in enumerate(shown):
        members = np.flatnonzero(found.assigned == cluster)
        nearest = members[np.argsort(found.distances[members])][:TYPICAL]
        row[: len(nearest)] = images[nearest]
    return shown


def make_tables(results: Results) -> list[Table]:
    """Tabulates the agreement of each view's clusters with the classes, and between seeds."""
    runs = [one.measured for one in results.of(ARM) if one.evaluation]
    mean = partial(tables.mean, runs=len(results.of(ARM)))

    def row(view: str) -> tuple[str, ...]:
        pairs = [rand_index(one[view], other[view]) for one, other in combinations(runs, 2)]
        return (
            VIEWS[view],
            mean([float(one[f"{view}/explained"]) for one in runs]),
            mean([float(one[f"{view}/silhouette"]) for one in runs]),
            mean([mutual_information(one[view], one["labels"]) for one in runs]),
            mean([100 * purity(one[view], one["labels"]) for one in runs], digits=1),
            tables.mean(pairs, len(pairs)),
        )

    seeds = "; means over seeds, which have the same pixels" if results.several else ""
    return [
        Table(
            f"{CLUSTERS} clusters of held-out images",
            (
                "clustered by", "variance between classes", "silhouette", "mutual information with the class",
                "images of the most common class of their cluster, %", "agreement of two seeds",
            ),
            tuple(map(row, VIEWS)),
            f"k-means{seeds}. Variance between classes: share of the total variance, before clustering; mutual "
            "information: adjusted, 0 for chance and 1 if clusters equal classes; agreement: adjusted Rand index on "
            "the same images",
        )
    ]  # fmt: skip


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws typical images of each cluster of the first seed's gates, and the clusters' classes and gates."""
    runs = [one for one in results.of(ARM) if one.evaluation]
    if runs:
        typical(runs[0].measured, runs[0].seed, figures)
        composition(runs[0].measured, runs[0].seed, figures)


def typical(found: Mapping[str, np.ndarray], seed: int, figures: Figures) -> None:
    """Draws the images nearest to the centre of each cluster."""
    images, sizes = found["images"], np.bincount(found["gates"])
    shares = class_shares(found["gates"], found["labels"], int(found["labels"].max()) + 1)
    title = f"Typical images of each cluster, seed {seed}"
    caption = "A row is a cluster of held-out images by all their gates, with the images nearest to its centre."
    with figures.figure("typical_images", (9.4, 0.7 * len(images) + 0.6), title, caption) as figure:
        rows = np.atleast_1d(figure.subplots(len(images), 1))
        for axes, row, size, share in zip(rows, images, sizes, shares, strict=True):
            strip = np.concatenate([np.pad(image[..., 0], 1) for image in row], axis=1)
            axes.imshow(strip, cmap="gray_r", vmin=0, vmax=255)
            axes.set_axis_off()
            text = f"{size} images, {share.max():.0%} are {share.argmax()}s"
            axes.text(-8, strip.shape[0] / 2, text, ha="right", va="center", fontsize=10)


def composition(found: Mapping[str, np.ndarray], seed: int, figures: Figures) -> None:
    """Draws the classes in each cluster, and the gates of each block against the mean of all images."""
    assigned, labels = found["gates"], found["labels"]
    classes = int(labels.max()) + 1
    shares = class_shares(assigned, labels, classes)
    away = found["profile"] - np.bincount(assigned) @ found["profile"] / len(assigned)
    end = float(np.abs(away).max()) or 1.0
    with figures.figure("routes", (11, 4.8), "Clusters: classes and gates") as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 2), sharey=True)
        mesh = heat_map(left, shares, first=(1, 0), vmin=0, vmax=1)
        figure.colorbar(mesh, ax=left, label="share of the cluster")
        left.set_xlabel("class")
        left.set_xticks(range(classes))
        left.set_ylabel(f"cluster, from the largest (seed {seed})")
        left.set_yticks(range(1, len(shares) + 1))
        left.invert_yaxis()
        mesh = heat_map(right, away, cmap="RdBu_r", vmin=-end, vmax=end)
        figure.colorbar(mesh, ax=right, label="mean of T, minus that of all images")
        right.set_xlabel(BLOCK)
        whole_ticks(right.xaxis, 10)


def _arm() -> Arm:
    base = numpy_study.ARMS[ARM]
    recorded = tuple(field for field in base.provenance.recorded if not field.startswith("subset."))
    return Arm(
        config=base.config.model_copy(update={"subset": Subset(), "validation": HELD_OUT}),
        provenance=Provenance(recorded=recorded, assumed=(*base.provenance.assumed, "validation")),
        data=Counts(train=MNIST.train - HELD_OUT, test=MNIST.test),
    )


STUDY = Study(
    name="depth-routes",
    title="Clusters of examples by their gates",
    source="none; an open question of the NumPy study",
    asks="do similar images open similar gates?",
    arms={ARM: _arm()},
    seeds=3,
    differs=(
        "The source trains on 6,000 images; this study on 55,000.",
        f"The number of clusters, {CLUSTERS}, is that of the classes and was not chosen by results.",
        "The images are from the training split but were held out of training: a net separates its training images "
        "better.",
    ),
    tables=make_tables,
    draw=draw_figures,
    measure=measured,
)
