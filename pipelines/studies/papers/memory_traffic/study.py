"""Bytes that a training step moves, highway against plain and residual: an open question of the study in numpy.

Command     highway reproduce data-movement; nothing else should run beside it
Net         10 blocks in two sizes: of 50 units and batches of 128, as in depth-contrast, whose arrays caches hold; and
            of 1 024 units and batches of 16, whose weights they do not. Beside each highway net a residual and a plain
            one, as wide and with as many parameters. All as separate layers, so that they differ in kind alone
Data        depth-contrast's, few of them: an epoch of ten steps, as what is measured is a step
Published   nothing
Sources     the training is that of depth-contrast; sizes and twins are ours
Measured    a highway step moves 2.8 times the bytes of a plain net as wide and 1.9 times those of one with as many
            parameters where caches hold all, 2.0 and 1.0 times where they do not (docs/results/data-movement); JAX
            0.10.2, float32, two cores of an Intel Xeon with avx512_bf16 and amx_bf16
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.core.config import ModelConfig, Provenance, Subset
from pipelines.core.plotting import GREY
from pipelines.core.run import Run, load_model
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers import depth_contrast, numpy_runs
from pipelines.studies.papers.memory_traffic import hlo
from pipelines.studies.papers.memory_traffic.lower_bound import Kind, least
from pipelines.studies.papers.nets import NETS

ROUNDS = 15
SECONDS = 0.1
"""Of steps in a round."""
STEPS = 10
"""Of the training before."""


class Size(NamedTuple):
    """How large nets and batches are."""

    title: str
    units: int
    batch: int


BLOCKS = 10
SIZES = {
    "small": Size(f"{BLOCKS} blocks of 50 units, batch 128", 50, 128),
    "large": Size(f"{BLOCKS} blocks of 1 024 units, batch 16", 1024, 16),
}
KINDS: dict[str, tuple[str, Kind]] = {
    "highway": ("highway", "highway"),
    "residual": ("residual, as wide", "residual"),
    "residual-wide": ("residual, as many parameters", "residual"),
    "plain": ("plain, as wide", "plain"),
    "plain-wide": ("plain, as many parameters", "plain"),
}
MARKS = {"small": "o", "large": "s"}


def measured(run: Run, data_dir: Path | None) -> Mapping[str, np.ndarray]:
    """Counts what a step of a run's net moves, and times it beside copies of memory.

    Args:
        run: trained.
        data_dir: where prepared data lies.

    Returns:
        `counted`, bytes of the compiled program; `weights` and `activations`, bytes by hand; `seconds` a step and
        `bandwidth` of copying, one a round.
    """
    from pipelines.core import environment, frameworks

    frameworks.load()
    from highway_keras.surgery import unstacked
    from pipelines.data import batches, preprocess, sources
    from pipelines.studies.papers.memory_traffic import step
    from pipelines.training import optimizers

    config = run.config
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    x, y = next(
        iter(batches.evaluation(examples, fitted, batch_size=config.batch_size, classes=10).as_numpy_iterator())
    )
    net = unstacked(load_model(run))
    compiled = step.compiled(net, optimizers.build(config.optimizer, config.optimizer.learning_rate), x, y)
    seconds, bandwidth = step.alternating(compiled, environment.cores(), rounds=ROUNDS, seconds=SECONDS)
    # The name of an arm is its size and its net.
    kind = KINDS[config.recipe.partition("-")[2]][1]
    by_hand = least(
        kind,
        blocks=BLOCKS,
        units=net.get_layer("entry").units,
        batch=config.batch_size,
        inputs=x[0].size,
        parameters=net.count_params(),
    )
    return {
        "counted": np.array(hlo.moved(compiled.program)),
        "weights": np.array(by_hand.weights),
        "activations": np.array(by_hand.activations),
        "seconds": seconds,
        "bandwidth": bandwidth,
    }


class Found(NamedTuple):
    """What was measured of an arm; times are the best of all rounds, as those that other work disturbed least."""

    parameters: int
    counted: float
    weights: float
    activations: float
    seconds: float
    bandwidth: float

    @property
    def rate(self) -> float:
        """Bytes a second that the step moves, as counted."""
        return self.counted / self.seconds


def found(results: Results) -> dict[str, dict[str, Found]]:
    """What was measured, by size and net; without those that diverged."""
    by_size: dict[str, dict[str, Found]] = {size: {} for size in SIZES}
    for size in SIZES:
        for kind in KINDS:
            name = f"{size}-{kind}"
            if results.accuracies(name):
                take = partial(results.measured, name)
                by_size[size][kind] = Found(
                    results.of(name)[0].run.record.parameters,
                    counted=float(take("counted").mean()),
                    weights=float(take("weights").mean()),
                    activations=float(take("activations").mean()),
                    seconds=float(take("seconds").min()),
                    bandwidth=float(take("bandwidth").max()),
                )
    return by_size


def tabulated(results: Results) -> list[Table]:
    """Bytes and times of each net, a table for each size."""
    head = (
        "net", "parameters", "MB a step, counted", "against plain", "MB at least, by hand", "of it activations",
        "ms a step", "against plain", "GB/s of the step", "GB/s of a copy",
    )  # fmt: skip
    made = []
    for size, nets in found(results).items():
        plain = nets.get("plain")
        rows = tuple((KINDS[kind][0], *_row(one, plain)) for kind, one in nets.items())
        made.append(Table(f"Bytes read and written in a training step: {SIZES[size].title}", head, rows, _NOTE))
    return made


_NOTE = (
    "counted: operands and results of all instructions of the program that XLA compiled; against plain: the plain net "
    "as wide; by hand: one pass for each product and for what lies between two; GB/s of the step: counted bytes over "
    "its time; GB/s of a copy: arrays that no cache holds, copied in turns with the steps; of both the best round"
)


def _row(one: Found, plain: Found | None) -> tuple[str, ...]:
    least = one.weights + one.activations
    return (
        tables.number(one.parameters),
        f"{one.counted / 1e6:.1f}",
        f"{one.counted / plain.counted:.2f}" if plain else tables.MISSING,
        f"{least / 1e6:.1f}",
        f"{one.activations / least:.0%}",
        f"{1000 * one.seconds:.2f}",
        f"{one.seconds / plain.seconds:.2f}" if plain else tables.MISSING,
        f"{one.rate / 1e9:.1f}",
        f"{one.bandwidth / 1e9:.1f}",
    )


def drawn(results: Results, figures: Figures) -> None:
    """Time over bytes of all nets."""
    by_size = found(results)
    known = [one for nets in by_size.values() for one in nets.values()]
    if not known:
        return
    title = "Time of a training step over the bytes that it moves"
    with figures.figure("movement", (8.6, 5.0), title) as figure:
        axes = figure.subplots()
        for size, nets in by_size.items():
            for kind, one in nets.items():
                hollow = kind.endswith("wide")
                axes.plot(
                    one.counted / 1e6,
                    1000 * one.seconds,
                    MARKS[size],
                    color=NETS[kind].colour,
                    mfc="none" if hollow else None,
                    ms=8,
                    ls="none",
                    label=f"{size}: {KINDS[kind][0]}",
                )
        bandwidth = max(one.bandwidth for one in known)
        ends = np.array([min(one.counted for one in known) / 2, 2 * max(one.counted for one in known)])
        label = f"copied at {bandwidth / 1e9:.1f} GB/s"
        axes.plot(ends / 1e6, 1000 * ends / bandwidth, color=GREY, ls="--", lw=1, label=label)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("MB read and written a step, counted from the compiled program")
        axes.set_ylabel("ms a step")
        figure.legend(loc="outside right center", fontsize=9)


def _arm(size: Size, name: str, net: str) -> Arm:
    base = depth_contrast.STUDY.arms[numpy_runs.arm("highway", depth_contrast.SHOWN)]
    model: ModelConfig = NETS[net].model
    changes: dict[str, Any] = {
        "recipe": name,
        # The projection counts as a layer.
        "model": model.model_copy(update={"depth": BLOCKS + 1, "width": size.units}),
        "subset": Subset(train=STEPS * size.batch, test=100),
        "epochs": 1,
        "batch_size": size.batch,
    }
    ours = {"subset.train", "subset.test", "epochs", "batch_size"}
    return Arm(
        config=base.config.model_copy(update=changes),
        provenance=Provenance(
            recorded=tuple(field for field in depth_contrast.RECORDED if field not in {*ours, "subset.seed"}),
            assumed=(
                *sorted(ours),
                "precision",
                "model.depth",
                "model.width",
                "model.transform_bias" if model.match is None else "model.match",
            ),
        ),
    )


STUDY = Study(
    name="data-movement",
    title="Bytes that a training step moves",
    source="none; an open question of a study in numpy",
    asks="does the carry path save data movement?",
    arms={f"{size}-{net}": _arm(SIZES[size], f"{size}-{net}", net) for size in SIZES for net in KINDS},
    seeds=1,
    differs=(
        "There is nothing to compare with: the source asks and does not measure.",
        "Bytes are those that instructions of the compiled program read and write, from wherever they come: of the "
        "small nets caches hold all.",
        "Every net is a chain of layers here, differentiated by the backend. `highway train` trains a dense highway "
        "net as one loop over stacked weights with a gradient of its own, which has other passes.",
    ),
    tables=tabulated,
    draw=drawn,
    measure=measured,
)
