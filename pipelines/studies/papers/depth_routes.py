"""What the gates of a net do for each example, clustered: an open question of the study in numpy.

Command     highway reproduce depth-routes
Net         the highway net of 30 blocks of depth-contrast
Data        MNIST but 5 000 images of its training split, which are held out; the routes are theirs
Published   nothing
Sources     the training is that of depth-contrast; all images in place of its subset, and what is held out, are ours
Measured    seeds 0 to 2, means: 86.2 % of the held-out images are of the commonest class of their cluster, by pixels
            62.7 %, by the gates before training 48.5 % (docs/results/depth-routes); Keras 3.15.1, JAX 0.10.2, float32,
            an Intel Xeon with avx512_bf16 and amx_bf16
"""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.ticker import MaxNLocator

from pipelines.core.config import Provenance, Subset
from pipelines.core.run import Run, load_model
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.framework.words import ranged
from pipelines.studies.papers import clusters, depth_contrast, numpy_runs

ARM = numpy_runs.arm("highway", depth_contrast.SHOWN)
CLUSTERS = 10
"""As many as there are classes, chosen before anything was measured."""
TYPICAL = 12
"""Images that are shown of each cluster: the nearest to its centre."""
VIEWS = {
    "gates": "every gate",
    "layers": "mean gate of each block",
    "untrained": "every gate, before training",
    "pixels": "pixels",
}
"""What is clustered; the last two tell how much of it the images themselves make."""


def measured(run: Run, data_dir: Path | None) -> Mapping[str, np.ndarray]:
    """Clusters the routes of held-out images through a trained net.

    Args:
        run: trained.
        data_dir: where prepared data lies.

    Returns:
        `labels` `[images]`; of each view `VIEW`, the cluster of each image, `VIEW/silhouette` and `VIEW/explained`, the
        share of all variance that lies between the classes; of the gates' clusters `images`, those nearest to the
        centre, uint8 `[clusters, TYPICAL, h, w, c]`, and `profile`, their mean gates by block, `[clusters, blocks]`;
        where a cluster has fewer images, the rest is black.
    """
    from pipelines.core import frameworks

    frameworks.load()
    from highway_keras.analysis import explained_by_class, signatures
    from pipelines.data import batches, preprocess, sources
    from pipelines.training.net import build

    config = run.config
    examples = sources.load(config.data, "validation", data_dir, config.validation, config.subset)
    # MNIST is not large enough to stay on disk.
    assert isinstance(examples, sources.Examples)
    info = sources.describe(config.data, data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    read = batches.evaluation(examples, fitted, batch_size=500, classes=0).as_numpy_iterator()
    x = np.concatenate([images for images, _ in read])
    net = load_model(run)
    views = {
        "gates": signatures(net, x, per="unit"),
        "layers": signatures(net, x, per="layer"),
        # The same seed draws the same weights.
        "untrained": signatures(build(config, info, run.record.precision.policy), x, per="unit"),
        "pixels": x.reshape(len(x), -1),
    }
    arrays: dict[str, np.ndarray] = {"labels": np.asarray(examples.labels)}
    for view, rows in views.items():
        found = clusters.clustered(rows, min(CLUSTERS, len(rows)))
        arrays[view] = found.assigned
        arrays[f"{view}/silhouette"] = np.array(found.silhouette)
        arrays[f"{view}/explained"] = np.array(explained_by_class(rows, arrays["labels"]))
        if view == "gates":
            arrays["images"] = _typical(examples.images, found)
            members = [views["layers"][found.assigned == cluster] for cluster in range(found.assigned.max() + 1)]
            arrays["profile"] = np.array([rows.mean(axis=0) for rows in members])
    return arrays


def _typical(images: np.ndarray, found: clusters.Clusters) -> np.ndarray:
    shown = np.zeros((found.assigned.max() + 1, TYPICAL, *images.shape[1:]), np.uint8)
    for cluster, row in enumerate(shown):
        members = np.flatnonzero(found.assigned == cluster)
        nearest = members[np.argsort(found.distances[members])][:TYPICAL]
        row[: len(nearest)] = images[nearest]
    return shown


def tabulated(results: Results) -> list[Table]:
    """How the clusters of each view compare with the classes, and from seed to seed."""
    runs = [one.measured for one in results.of(ARM) if one.evaluation]

    def row(view: str) -> tuple[str, ...]:
        pairs = [clusters.agreement(one[view], other[view]) for one, other in combinations(runs, 2)]
        return (
            VIEWS[view],
            tables.mean([float(one[f"{view}/explained"]) for one in runs]),
            tables.mean([float(one[f"{view}/silhouette"]) for one in runs]),
            tables.mean([clusters.told_by(one[view], one["labels"]) for one in runs]),
            tables.mean([100 * clusters.named_right(one[view], one["labels"]) for one in runs], 1),
            tables.mean(pairs),
        )

    return [
        Table(
            f"{CLUSTERS} clusters of the routes of held-out images",
            (
                "what is clustered", "variance between classes", "silhouette", "mutual information with the class",
                "of the commonest class of their cluster, in percent", "agreement of two seeds",
            ),
            tuple(map(row, VIEWS)),
            "k-means; means over seeds. Variance between classes: share of all variance, before any clustering; mutual "
            "information: adjusted, 0 for chance and 1 where clusters are classes; agreement: adjusted Rand index of "
            "the same images. Pixels are the same for every seed",
        )
    ]  # fmt: skip


def drawn(results: Results, figures: Figures) -> None:
    """Typical images of each cluster of the gates, and what classes and which gates are in it; of the first seed."""
    runs = [one for one in results.of(ARM) if one.evaluation]
    if runs:
        typical(runs[0].measured, runs[0].seed, figures)
        composition(runs[0].measured, runs[0].seed, results, figures)


def typical(found: Mapping[str, np.ndarray], seed: int, figures: Figures) -> None:
    """The images nearest to the centre of each cluster."""
    images, sizes = found["images"], np.bincount(found["gates"])
    shares = clusters.shares(found["gates"], found["labels"], int(found["labels"].max()) + 1)
    caption = (
        f"Seed {seed}. A row is a cluster of held-out images by all their gates, from the largest on; its images are "
        f"those nearest to the centre. The commonest class makes {ranged(shares.max(axis=1), '.1%')} of a "
        f"cluster; {len(set(shares.argmax(axis=1)))} of {shares.shape[1]} classes are the commonest of one."
    )
    height = 0.7 * len(images) + 0.6
    with figures.figure("typical_images", (9.4, height), "Typical images of each cluster of routes", caption) as figure:
        for axes, row, size, share in zip(
            np.atleast_1d(figure.subplots(len(images), 1)), images, sizes, shares, strict=True
        ):
            strip = np.concatenate([np.pad(image[..., 0], 1) for image in row], axis=1)
            axes.imshow(strip, cmap="gray_r", vmin=0, vmax=255)
            axes.set_axis_off()
            told = f"{size} images, {share.max():.0%} are {share.argmax()}s"
            axes.text(-8, strip.shape[0] / 2, told, ha="right", va="center", fontsize=10)


def composition(found: Mapping[str, np.ndarray], seed: int, results: Results, figures: Figures) -> None:
    """Classes in each cluster, and the gates of each block against the mean of all images."""
    assigned, labels = found["gates"], found["labels"]
    classes = int(labels.max()) + 1
    shares = clusters.shares(assigned, labels, classes)
    everyone = np.bincount(assigned) @ found["profile"] / len(assigned)
    away = found["profile"] - everyone
    with figures.figure(
        "routes", (11, 4.8), "Clusters of routes: their classes and their gates", caption(results)
    ) as figure:
        left, right = figure.subplots(1, 2, width_ratios=(1, 2), sharey=True)
        rows = np.arange(len(shares) + 1) + 0.5
        mesh = left.pcolormesh(np.arange(classes + 1) - 0.5, rows, shares, cmap="viridis", vmin=0, vmax=1)
        figure.colorbar(mesh, ax=left, label="share of the cluster")
        left.set_xlabel("class")
        left.set_xticks(range(classes))
        left.set_ylabel(f"cluster, from the largest (seed {seed})")
        left.set_yticks(range(1, len(shares) + 1))
        left.invert_yaxis()
        end = float(np.abs(away).max()) or 1.0
        blocks = np.arange(away.shape[1] + 1) + 0.5
        mesh = right.pcolormesh(blocks, rows, away, cmap="RdBu_r", vmin=-end, vmax=end)
        figure.colorbar(mesh, ax=right, label="mean of T, minus that of all images")
        right.set_xlabel("block, from the input")
        right.xaxis.set_major_locator(MaxNLocator(10, integer=True))
        for axes in (left, right):
            axes.grid(visible=False)


def caption(results: Results) -> str:
    """What the clusters say of the classes, against those of pixels and of gates that were not trained."""
    runs = [one.measured for one in results.of(ARM) if one.evaluation]
    told = {view: mean(clusters.told_by(one[view], one["labels"]) for one in runs) for view in VIEWS}
    order = sorted(("gates", "untrained", "pixels"), key=told.__getitem__, reverse=True)
    names = {"gates": "gates after training", "untrained": "gates before training", "pixels": "pixels"}
    ranks = ", then ".join(f"{names[view]} ({told[view]:.2f})" for view in order)
    away = np.abs(runs[0]["profile"] - runs[0]["profile"].mean(axis=0)).mean(axis=0)
    third = max(1, len(away) // 3)
    return (
        f"Of what is clustered, these tell most of the class (adjusted mutual information, mean over seeds): {ranks}. "
        f"The mean gates of clusters differ by {away[:third].mean():.4f} on average in the first {third} blocks, by "
        f"{away[-third:].mean():.4f} in the last {third}, and most in block {away.argmax() + 1}."
    )


def _arm() -> Arm:
    base = depth_contrast.STUDY.arms[ARM]
    recorded = tuple(field for field in base.provenance.recorded if not field.startswith("subset."))
    return Arm(
        config=base.config.model_copy(update={"subset": Subset(), "validation": 5000}),
        provenance=Provenance(recorded=recorded, assumed=(*base.provenance.assumed, "validation")),
        data=Counts(train=55_000, test=10_000),
    )


STUDY = Study(
    name="depth-routes",
    title="Routes of examples through the gates",
    source="none; an open question of a study in numpy",
    asks="do images of a kind take routes of a kind through the gates?",
    arms={ARM: _arm()},
    seeds=3,
    differs=(
        "The source trains on 6 000 images; here on 55 000.",
        f"The number of clusters, {CLUSTERS}, is that of the classes and was not chosen by what came out.",
        "The images are of the training split but were held out of training: a net tells images apart that it was "
        "trained on.",
    ),
    tables=tabulated,
    draw=drawn,
    measure=measured,
)
