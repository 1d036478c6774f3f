"""A NumPy study of highway and plain nets on a small part of MNIST: its nets, their training and its recorded runs.

The study `depth-contrast` repeats it; others train further nets in the same way.

Sources     https://cybertronai.github.io/schmidhuber-problems/highway-networks: one run per net, three at 30 blocks
"""

import math
import statistics

import numpy as np

from pipelines.core.config import Config, ModelConfig, Preprocess, Provenance, Subset
from pipelines.core.optimizers import Adam
from pipelines.studies.framework import tables
from pipelines.studies.framework.results import Result, Results
from pipelines.studies.framework.study import Arm, Published
from pipelines.studies.framework.tables import MISSING, Table

KINDS = ("highway", "plain")
BLOCKS = (5, 10, 20, 30, 50, 100)
SHOWN = 30
"""Depth, in blocks, of the nets whose training is shown in detail, as in the source."""
BIAS = -2.0

RECORDED = (
    "model.preset",
    "model.initializer",
    "data",
    "subset.train",
    "subset.test",
    "subset.seed",
    "preprocess.scale",
    "preprocess.offset",
    "optimizer.name",
    "optimizer.learning_rate",
    "optimizer.epsilon",
    "optimizer.clip_norm",
    "epochs",
    "batch_size",
)
COLUMNS = tuple(f"{kind}{whose}" for kind in KINDS for whose in ("", ", source"))
"""Table columns: both kinds of nets, each next to the source's."""
ACCURACIES: dict[tuple[str, int], tuple[float, ...]] = {
    ("highway", 5): (0.903,),
    ("highway", 10): (0.913,),
    ("highway", 20): (0.910,),
    ("highway", 30): (0.926, 0.904, 0.893),
    ("highway", 50): (0.905,),
    ("plain", 5): (0.857,),
    ("plain", 10): (0.292,),
    ("plain", 20): (0.098,),
    ("plain", 30): (0.124, 0.119, 0.111),
    ("plain", 50): (0.124,),
}
"""Test accuracies of the source's runs: seed 0 and, if there are three, seeds 1 and 2."""
RUNS = tuple(
    (blocks, seed) for (kind, blocks), scores in ACCURACIES.items() if kind == KINDS[0] for seed in range(len(scores))
)
"""Blocks and seeds of its runs, equal for both kinds."""
DRAWS = 1 + max(seed for _, seed in RUNS)
"""Number of the source's seeds, each of which also draws its own images."""
LOSSES = {
    "highway": {5: 0.190, 10: 0.187, 20: 0.215, 30: 0.189, 50: 0.301},
    "plain": {5: 0.478, 10: 1.773, 20: 2.303, 30: 2.302, 50: 2.302},
}
"""Training losses of the source's runs with seed 0."""
PUBLISHED = {
    (kind, blocks): Published.of(*scores, loss=LOSSES[kind][blocks]) for (kind, blocks), scores in ACCURACIES.items()
}


def arm(kind: str, blocks: int) -> str:
    """The name of the arm of a net."""
    return f"{kind}-{blocks}"


def _arm(kind: str, blocks: int) -> Arm:
    gated = kind == "highway"
    known = (kind, blocks) in PUBLISHED
    depth = ("model.depth", "model.transform_bias" if gated else "model.match")
    return Arm(
        config=Config(
            recipe=arm(kind, blocks),
            model=ModelConfig(
                preset="mnist_dense_50" if gated else "mnist_dense_50_plain",
                # The projection counts as a layer.
                depth=blocks + 1,
                transform_bias=BIAS if gated else None,
                match=None if gated else "width",
                initializer="fan_in_uniform",
            ),
            data="mnist",
            subset=Subset(train=6000, test=2000, seed=0),
            preprocess=Preprocess(scale=2 / 255, offset=-1.0),
            optimizer=Adam(learning_rate=0.005, epsilon=1e-8, clip_norm=5.0),
            epochs=12,
            batch_size=128,
            precision="float32",
        ),
        published=PUBLISHED.get((kind, blocks), Published()),
        provenance=Provenance(
            recorded=(*RECORDED, *depth) if known else RECORDED,
            assumed=("precision",) if known else ("precision", *depth),
        ),
    )


ARMS = {arm(kind, blocks): _arm(kind, blocks) for kind in KINDS for blocks in BLOCKS}
"""The nets of the study, and ours of 100 blocks, trained as recorded."""


def comparison_table(results: Results) -> Table:
    """Tabulates each run of the source next to ours on its images, and the mean of all."""
    rows = [
        (str(blocks), str(seed), *(cell for kind in KINDS for cell in _cells(results, kind, blocks, seed)))
        for blocks, seed in RUNS
    ]
    rows.append(("mean", "", *(cell for kind in KINDS for cell in _means(results, kind))))
    return Table(
        "On the same images as each run of the source, accuracy in percent",
        ("blocks", "images of seed", *COLUMNS),
        tuple(rows),
        f"{tables.score_format(rows)}, on these images. The source has one run on each, with other weights and another "
        "order of images. Mean: over the rows; in brackets, its difference from the source's, in points ± standard "
        "error",
    )


def _means(results: Results, kind: str) -> tuple[str, str]:
    """Means over the rows, ours with the difference from the source; ours is missing if a row lacks runs of ours."""
    groups = [_scores(results, kind, blocks, seed) for blocks, seed in RUNS]
    diverged = tables.more_diverged(
        sum(map(len, groups)), sum(len(_on(results, kind, blocks, seed)) for blocks, seed in RUNS)
    )
    theirs = statistics.mean(ACCURACIES[kind, blocks][seed] for blocks, seed in RUNS)
    if not all(groups):
        return MISSING, f"{100 * theirs:.2f}"
    ours = statistics.mean(map(statistics.mean, groups))
    return f"{100 * ours:.2f} ({100 * (ours - theirs):+.2f}{_error(groups)}{diverged})", f"{100 * theirs:.2f}"


def _error(groups: list[list[float]]) -> str:
    """The standard error of the mean difference between groups of runs and a single other run for each group.

    Empty if no group has two runs, without which the spread of runs cannot be estimated.
    """
    free = sum(len(scores) - 1 for scores in groups)
    if not free:
        return ""
    variance = sum(float(np.var(scores)) * len(scores) for scores in groups) / free
    return f" ± {100 * math.sqrt(variance * sum(1 + 1 / len(scores) for scores in groups)) / len(groups):.2f}"


def _cells(results: Results, kind: str, blocks: int, seed: int) -> tuple[str, str]:
    ours = tables.measured(_scores(results, kind, blocks, seed), len(_on(results, kind, blocks, seed)))
    return ours, f"{100 * ACCURACIES[kind, blocks][seed]:.2f}"


def _scores(results: Results, kind: str, blocks: int, seed: int) -> list[float]:
    """Accuracies of the runs on the images of one of the source's seeds, without runs that diverged."""
    return [run.accuracy for run in _on(results, kind, blocks, seed) if run.accuracy is not None]


def _on(results: Results, kind: str, blocks: int, seed: int) -> list[Result]:
    """The runs of a net on the images of one of the source's seeds."""
    return [run for run in results.of(arm(kind, blocks)) if run.run.config.subset.seed == seed]
