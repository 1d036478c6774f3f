"""Memory traffic of a training step, highway versus plain and residual nets: an open question of the NumPy study.

Command     highway reproduce data-movement, on a quiet machine
Net         10 blocks in two sizes: 50 units and batches of 128, as in depth-contrast, which fit into caches; and 1,024
            units and batches of 16, whose weights do not. Each highway net is compared with residual and plain nets of
            equal width and of equal parameter count. All are built from single layers, so that only the kind differs
Data        a small part of depth-contrast's data: one epoch of ten steps, because only a step is measured
Published   nothing
Sources     training as in depth-contrast; sizes and twins are ours
Measured    docs/results/data-movement
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipelines.core.config import ModelConfig, Provenance, Subset
from pipelines.core.run import Run, load_model
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Study
from pipelines.studies.framework.tables import Table
from pipelines.studies.papers.memory_traffic.lower_bound import Kind, least
from pipelines.studies.shared import numpy_study
from pipelines.studies.shared.nets import NETS

ROUNDS = 15
SECONDS = 0.1
"""Duration of the steps in a round."""
STEPS = 10
"""Training steps before the measurement."""


class Size(NamedTuple):
    """Width of the nets and size of the batches."""

    title: str
    units: int
    batch: int


BLOCKS = 10
SIZES = {
    "small": Size(f"{BLOCKS} blocks of 50 units, batch 128", 50, 128),
    "large": Size(f"{BLOCKS} blocks of 1,024 units, batch 16", 1024, 16),
}
KINDS: dict[str, tuple[str, Kind]] = {
    "highway": ("highway", "highway"),
    "residual": ("residual, equal width", "residual"),
    "residual-wide": ("residual, equal parameters", "residual"),
    "plain": ("plain, equal width", "plain"),
    "plain-wide": ("plain, equal parameters", "plain"),
}


def measured(run: Run, data_dir: Path | None) -> Mapping[str, np.ndarray]:
    """Counts the bytes that a training step moves, and times it alternately with memory copies.

    Args:
        run: a finished run.
        data_dir: folder of prepared data.

    Returns:
        `counted`, bytes of the compiled program; `weights` and `activations`, the lower bound; `seconds` per step and
        `bandwidth` of copies, one value per round.
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
    # The name of an arm is SIZE-NET.
    kind = KINDS[config.recipe.partition("-")[2]][1]
    bound = least(
        kind,
        blocks=BLOCKS,
        units=net.get_layer("entry").units,
        batch=config.batch_size,
        inputs=x[0].size,
        parameters=net.count_params(),
    )
    return {
        "counted": np.array(step.moved(compiled.program)),
        "weights": np.array(bound.weights),
        "activations": np.array(bound.activations),
        "seconds": seconds,
        "bandwidth": bandwidth,
    }


class Traffic(NamedTuple):
    """Measurements of an arm. Times are the best of all rounds: the ones least disturbed by other work."""

    parameters: int
    counted: float
    weights: float
    activations: float
    seconds: float
    bandwidth: float

    @property
    def rate(self) -> float:
        """Counted bytes per second of a step."""
        return self.counted / self.seconds


def traffic(results: Results) -> dict[str, dict[str, Traffic]]:
    """Returns the measurements by size and net, without arms that diverged."""
    by_size: dict[str, dict[str, Traffic]] = {size: {} for size in SIZES}
    for size in SIZES:
        for kind in KINDS:
            name = f"{size}-{kind}"
            if results.accuracies(name):
                take = partial(results.measured, name)
                by_size[size][kind] = Traffic(
                    results.of(name)[0].run.record.parameters,
                    counted=float(take("counted").mean()),
                    weights=float(take("weights").mean()),
                    activations=float(take("activations").mean()),
                    seconds=float(take("seconds").min()),
                    bandwidth=float(take("bandwidth").max()),
                )
    return by_size


def make_tables(results: Results) -> list[Table]:
    """Tabulates bytes and times of each net, one table per size."""
    head = (
        "net", "parameters", "MB per step, counted", "relative to plain", "MB, lower bound", "of these, activations",
        "ms per step", "relative to plain", "GB/s of the step", "GB/s of a copy",
    )  # fmt: skip
    shown = []
    for size, nets in traffic(results).items():
        plain = nets.get("plain")
        rows = tuple((KINDS[kind][0], *_row(one, plain)) for kind, one in nets.items())
        shown.append(Table(f"Bytes read and written in a training step: {SIZES[size].title}", head, rows, _NOTE))
    return shown


_NOTE = (
    "counted: operands and results of all instructions of the program that XLA compiled; relative to plain: to the "
    "plain net of equal width; lower bound: one pass for each product and one for all elementwise work between two; "
    "GB/s of the step: counted bytes per time; GB/s of a copy: arrays larger than caches, copied in turns with the "
    "steps; best round of each"
)


def _row(one: Traffic, plain: Traffic | None) -> tuple[str, ...]:
    least = one.weights + one.activations
    return (
        tables.number(one.parameters),
        f"{one.counted / 1e6:,.1f}",
        f"{one.counted / plain.counted:.2f}" if plain else tables.MISSING,
        f"{least / 1e6:,.1f}",
        f"{one.activations / least:.0%}",
        f"{1000 * one.seconds:.2f}",
        f"{one.seconds / plain.seconds:.2f}" if plain else tables.MISSING,
        f"{one.rate / 1e9:.1f}",
        f"{one.bandwidth / 1e9:.1f}",
    )


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws bytes and time of a step for every net, one row per size."""
    by_size = {size: nets for size, nets in traffic(results).items() if nets}
    if not by_size:
        return
    with figures.figure("movement", (9.4, 1 + 1.9 * len(by_size)), "Bytes and time of a training step") as figure:
        for (size, nets), row in zip(by_size.items(), figure.subplots(len(by_size), 2, squeeze=False), strict=True):
            (moved, time), places = row, range(len(nets))
            for axes, field, scale, unit in (
                (moved, "counted", 1e-6, "MB read and written"), (time, "seconds", 1e3, "ms")
            ):  # fmt: skip
                values = [scale * getattr(net, field) for net in nets.values()]
                bars = axes.barh(places, values, color=[NETS[kind].colour for kind in nets], height=0.65)
                axes.bar_label(bars, fmt="{:,.4g}", padding=3, fontsize=9)
                axes.set_yticks(places, [KINDS[kind][0] for kind in nets])
                axes.set_xlabel(f"{unit} per step")
                axes.invert_yaxis()
                axes.grid(visible=False, axis="y")
                axes.margins(x=0.15)
                axes.xaxis.set_major_formatter("{x:,g}")
            copies = [1e3 * net.counted / net.bandwidth for net in nets.values()]
            time.plot(copies, places, "k|", ms=16, mew=2, label="time to copy as many bytes")
            time.tick_params(labelleft=False)
            moved.set_title(SIZES[size].title, fontsize="medium", loc="left")
        figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", fontsize=9)


def _arm(size: Size, name: str, net: str) -> Arm:
    base = numpy_study.ARMS[numpy_study.arm("highway", numpy_study.SHOWN)]
    model: ModelConfig = NETS[net].model
    changes: dict[str, Any] = {
        "recipe": name,
        # The projection counts as one layer.
        "model": model.model_copy(update={"depth": BLOCKS + 1, "width": size.units}),
        "subset": Subset(train=STEPS * size.batch, test=100),
        "epochs": 1,
        "batch_size": size.batch,
    }
    ours = {"subset.train", "subset.test", "epochs", "batch_size"}
    return Arm(
        config=base.config.model_copy(update=changes),
        provenance=Provenance(
            recorded=tuple(field for field in numpy_study.RECORDED if field not in {*ours, "subset.seed"}),
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
    title="Memory traffic of a training step",
    source="none; an open question of the NumPy study",
    asks="does the carry path save memory traffic?",
    arms={f"{size}-{net}": _arm(SIZES[size], f"{size}-{net}", net) for size in SIZES for net in KINDS},
    seeds=1,
    differs=(
        "The source asks the question and measures nothing.",
        "Bytes are those that instructions of the compiled program read and write, from caches or from memory; the "
        "small nets fit into caches.",
        "Every net is a chain of layers, differentiated by the backend. `highway train` trains a dense highway net as "
        "one loop over stacked weights with a hand-written gradient, which makes other passes.",
    ),
    tables=make_tables,
    draw=draw_figures,
    measure=measured,
)
