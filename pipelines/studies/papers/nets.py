"""Nets that are compared at equal depth: highway, residual and plain, of equal width and of equal parameters.

All are trained as `depth_contrast` trains its nets. A twin of 71 units has as many parameters a block as a highway net
of 50 (`highway_keras.models`).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matplotlib.ticker import LogLocator, NullFormatter

from pipelines.core.config import Config, ModelConfig, Provenance, Subset
from pipelines.core.plotting import BLUE, GREEN, ORANGE
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts
from pipelines.studies.framework.words import listed
from pipelines.studies.papers import depth_contrast, numpy_runs
from pipelines.studies.papers.depth_contrast import GUESS, RECORDED

MNIST = Counts(train=60_000, test=10_000)


@dataclass(frozen=True)
class Contender:
    """One of the nets.

    Args:
        title: what tables and legends call it.
        model: the net, short of its depth.
        colour: of its lines.
        style: of its lines.
    """

    title: str
    model: ModelConfig
    colour: str
    style: str = "-"


def _net(title: str, colour: str, style: str, preset: str, **fields: Any) -> Contender:
    return Contender(title, ModelConfig(preset=preset, initializer="fan_in_uniform", **fields), colour, style)


NETS = {
    "highway": _net("highway (gate bias -2)", BLUE, "-", "mnist_dense_50", transform_bias=depth_contrast.BIAS),
    "highway-low": _net("highway (gate bias -4)", BLUE, "--", "mnist_dense_50", transform_bias=-4.0),
    "residual": _net("residual (50 units)", GREEN, "-", "mnist_dense_50_residual", match="width"),
    "residual-wide": _net("residual (71 units)", GREEN, "--", "mnist_dense_50_residual", match="parameters"),
    "plain": _net("plain (50 units)", ORANGE, "-", "mnist_dense_50_plain", match="width"),
    "plain-wide": _net("plain (71 units)", ORANGE, "--", "mnist_dense_50_plain", match="parameters"),
}


def name(net: str, blocks: int) -> str:
    """The name of an arm; that of `depth_contrast` where the net is one of its own."""
    return f"{net}-{blocks}"


def arm(net: str, blocks: int, *, whole: bool = False) -> Arm:
    """A net of some depth, trained as in `depth_contrast`.

    Args:
        net: one of `NETS`.
        blocks: after the projection.
        whole: whether on all of MNIST, and not on its subset.

    Returns:
        The arm.

    Example:
        arm("residual-wide", 30).config.model.match  # "parameters"
    """
    own = depth_contrast.STUDY.arms
    if name(net, blocks) in own and not whole:
        return own[name(net, blocks)]
    config: Config = own[numpy_runs.arm("highway", depth_contrast.SHOWN)].config
    model = NETS[net].model
    changes: dict[str, Any] = {
        "recipe": name(net, blocks),
        # The projection counts as a layer.
        "model": model.model_copy(update={"depth": blocks + 1}),
        **({"subset": Subset()} if whole else {}),
    }
    ours = ("precision", "model.depth", "model.transform_bias" if model.match is None else "model.match")
    return Arm(
        config=config.model_copy(update=changes),
        provenance=Provenance(
            recorded=tuple(field for field in RECORDED if not (whole and field.startswith("subset."))), assumed=ours
        ),
        data=MNIST if whole else None,
    )


def best_and_guessing(results: Results, blocks: int) -> str:
    """Which net of a depth is best on average, which is worst, and which only guess; in sentences."""
    scores = {net: results.accuracies(name(net, blocks)) for net in NETS}
    means = {net: sum(values) / len(values) for net, values in scores.items() if values}
    guessing = [net for net in means if max(scores[net]) <= GUESS]
    order = sorted((net for net in means if net not in guessing), key=means.__getitem__, reverse=True)
    said = []
    if order:
        first, last = (f"{NETS[net].title} with {means[net]:.1%}" for net in (order[0], order[-1]))
        lowest = "and of those that do more than guess the lowest" if guessing else "and the lowest"
        between = f", {lowest} that of {last}" if len(order) > 1 else ""
        said.append(f"At {blocks} blocks the highest mean accuracy is that of {first}{between}.")
    if guessing:
        who = f"{_titles(guessing)} {'guesses' if len(guessing) == 1 else 'guess'}"
        said.append(f"At {blocks} blocks {who}: no run is above {GUESS:.0%}.")
    if lost := [net for net in NETS if results.lost(name(net, blocks))]:
        said.append(f"At {blocks} blocks every run of {_titles(lost)} diverged.")
    return " ".join(said)


def _titles(nets: Iterable[str]) -> str:
    return listed(NETS[net].title for net in nets)


def log_scale(axis: Any) -> None:
    """A logarithmic axis of losses, with numbers as people write them."""
    axis.axes.set_yscale("log")
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter("{x:g}")
    axis.set_minor_formatter(NullFormatter())
