"""How far gradients get into plain, residual and highway nets, at initialisation and through training.

Command     highway reproduce gradients
Net         those of depth-contrast with 10, 30 and 50 blocks: a projection from 784 to 50 tanh units, then blocks of 50
            tanh units, highway (gate bias -2), residual (x + H) or plain, and a softmax; weights U(+-1/sqrt(fan_in))
Data        6 000 training and 2 000 test images of MNIST, those of depth-contrast
Published   the formula alone: dy/dx = diag(1 - T) + diag(T) dH/dx + diag(H - x) dT/dx, of which the first part is there
            whatever the weights are
Sources     the training is recorded, see depth-contrast; the residual nets are ours
Measured    not yet run in full
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator

from pipelines.config import Provenance
from pipelines.figures import BLUE, GREY, ORANGE
from pipelines.studies import depth_contrast, flow, tables
from pipelines.studies.pictures import Pictures
from pipelines.studies.results import Results
from pipelines.studies.study import Arm, Study
from pipelines.studies.tables import MISSING, Table
from pipelines.studies.words import listed, ranged

GREEN = "#009E73"
KINDS = ("highway", "residual", "plain")
COLOURS = {"highway": BLUE, "residual": GREEN, "plain": ORANGE}
BLOCKS = (10, 30, 50)
SHOWN = 30
"""Blocks of the nets whose training is shown in detail."""


def arm(kind: str, blocks: int) -> str:
    """The name of an arm."""
    return f"{kind}-{blocks}"


def by_block(results: Results, kind: str, blocks: int, quantity: str) -> np.ndarray:
    """What was watched of every block, the median over the runs that did not diverge.

    Args:
        results: of the study.
        kind: of the net.
        blocks: of the net.
        quantity: such as "kernel", see `flow`.

    Returns:
        float [1 + epochs, blocks]; no rows if every run diverged.
    """
    rows = results.watched(arm(kind, blocks))
    if not rows:
        return np.empty((0, blocks))
    return np.median([rows[f"{quantity}/{block}"] for block in range(1, blocks + 1)], axis=1).T


def reach(results: Results, kind: str, blocks: int) -> np.ndarray:
    """The norm of the gradient in the first block over that in the last: float [1 + epochs], median over runs."""
    rows = results.watched(arm(kind, blocks))
    if not rows:
        return np.empty(0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.median(rows["kernel/1"] / rows[f"kernel/{blocks}"], axis=0)


def tabulated(results: Results) -> list[Table]:
    """How far the gradient gets, and the Jacobians against the formula."""
    norms, parts = [], []
    for blocks in BLOCKS:
        for kind in KINDS:
            kernel, ratio = by_block(results, kind, blocks, "kernel"), reach(results, kind, blocks)
            cells = [f"{value:.2g}" for time in (0, -1) if len(kernel) for value in (kernel[time, 0], kernel[time, -1])]
            cells = [*cells[:2], f"{ratio[0]:.2g}", *cells[2:], f"{ratio[-1]:.2g}"] if len(ratio) else [MISSING] * 6
            ours = tables.measured(results.accuracies(arm(kind, blocks)), len(results.of(arm(kind, blocks))))
            norms.append((f"{kind}, {blocks}", *cells, ours))
        parts.append((str(blocks), *_parts(results, blocks)))
    return [
        Table(
            "Norm of the gradient of the loss, kernel of H",
            (
                "net, blocks",
                *(f"{place}, {time}" for time in ("before", "after") for place in ("first block", "last", "ratio")),
                "test accuracy, in percent",
            ),
            tuple(norms),
            f"before and after training, over {flow.EXAMPLES} training images; medians over seeds. The source gives no "
            "figures",
        ),
        Table(
            "The Jacobian of a highway block against the formula",
            (
                "blocks",
                *(
                    f"{what}, {time}"
                    for time in ("before", "after")
                    for what in ("mean of 1 - T", "mean diagonal measured", "factor of all blocks", "by 1 - T alone")
                ),
                "worst error of the formula",
            ),
            tuple(parts),
            "before and after training, means over the blocks, medians over seeds. Factor: of the length of a gradient "
            "of random direction on its way through all blocks. Error: norm of the difference between the Jacobian of "
            "the formula and the one measured by differences, over the norm of the latter, at the worst block and "
            f"image of {flow.FEW}, before training and after each epoch",
        ),
    ]


def _parts(results: Results, blocks: int) -> list[str]:
    quantities = {name: by_block(results, "highway", blocks, name) for name in ("identity", "diagonal", "gain", "path")}
    if not len(quantities["identity"]):
        return [MISSING] * 9
    cells = []
    for time in (0, -1):
        cells += [f"{quantities[name][time].mean():.3f}" for name in ("identity", "diagonal")]
        cells += [f"{quantities[name][time, 0]:.2g}" for name in ("gain", "path")]
    return [*cells, f"{worst(results, blocks):.1g}"]


def worst(results: Results, blocks: int) -> float:
    """The largest error of the formula, over all runs and times."""
    return float(results.watched(arm("highway", blocks))["error"].max())


def drawn(results: Results, pictures: Pictures) -> None:
    """All figures of the study."""
    at_start(results, pictures)
    through_training(results, pictures)
    first_over_last(results, pictures)
    if len(by_block(results, "highway", SHOWN, "identity")):
        jacobian(results, pictures)
        paths(results, pictures)


def at_start(results: Results, pictures: Pictures) -> None:
    """The norm of the gradient by block before training, a panel for each depth."""
    with pictures.figure(
        "gradients_at_start", (11, 4.2), "Gradient by block before training", start_caption(results)
    ) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                rows = results.watched(arm(kind, blocks))
                if rows:
                    runs = np.array([rows[f"kernel/{block}"][:, 0] for block in range(1, blocks + 1)])
                    axes.plot(np.arange(1, blocks + 1), runs, color=COLOURS[kind], lw=0.8, alpha=0.5)
                    axes.plot(np.arange(1, blocks + 1), np.median(runs, axis=1), color=COLOURS[kind], label=kind)
            _blocks_below(axes)
            axes.set_yscale("log")
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("norm of the gradient, kernel of H")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def start_caption(results: Results) -> str:
    """What the gradients are before training."""
    return f"Thin lines are seeds, thick ones their medians. {_told(results, 0)}"


def _told(results: Results, time: int) -> str:
    """The gradient in the first block over that in the last, before training (0) or after it (-1)."""
    parts = []
    for kind in KINDS:
        known = {blocks: ratio[time] for blocks in BLOCKS if len(ratio := reach(results, kind, blocks))}
        if known:
            values = listed(f"{ratio:.2g}" for ratio in known.values())
            parts.append(f"in {kind} nets of {listed(known)} blocks {values}")
    when = "Before" if time == 0 else "After"
    return f"{when} training the norm in the first block over that in the last is {'; '.join(parts)}." if parts else ""


def through_training(results: Results, pictures: Pictures) -> None:
    """The norm of the gradient by block and epoch, a panel for each kind, with one scale."""
    known = {kind: norms for kind in KINDS if len(norms := by_block(results, kind, SHOWN, "kernel"))}
    title = f"Gradient by block through training, {SHOWN} blocks"
    caption = f"{_told(results, -1)} One scale for all; medians over seeds."
    with pictures.figure("gradients_through_training", (11, 4.2), title, caption) as figure:
        panels = figure.subplots(1, len(KINDS), sharey=True)
        positive = [norms[norms > 0] for norms in known.values()]
        scale = LogNorm(min(some.min() for some in positive), max(some.max() for some in positive))
        for axes, kind in zip(panels, KINDS, strict=True):
            axes.set_title(kind if kind in known else f"{kind}: every run diverged")
            axes.grid(visible=False)
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            if kind in known:
                epochs, blocks = np.arange(len(known[kind]) + 1) - 0.5, np.arange(SHOWN + 1) + 0.5
                values = np.ma.masked_less_equal(known[kind].T, 0)
                mesh = axes.pcolormesh(epochs, blocks, values, cmap="viridis", norm=scale)
        panels[0].set_ylabel("block, from the input")
        figure.colorbar(mesh, ax=panels, label="norm of the gradient, kernel of H")


def first_over_last(results: Results, pictures: Pictures) -> None:
    """How much of the gradient gets to the first block, through training."""
    title = "Gradient in the first block over that in the last"
    with pictures.figure("first_over_last", (11, 4.0), title, last_caption(results)) as figure:
        panels = figure.subplots(1, len(BLOCKS), sharey=True)
        for axes, blocks in zip(panels, BLOCKS, strict=True):
            for kind in KINDS:
                ratio = reach(results, kind, blocks)
                axes.plot(np.arange(len(ratio)), ratio, color=COLOURS[kind], marker="o", ms=4, label=kind)
            axes.axhline(1, color=GREY, ls="--", lw=1)
            axes.set_yscale("log")
            axes.set_xlabel("epoch (0: before training)")
            axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))
            axes.set_title(f"{blocks} blocks")
        panels[0].set_ylabel("ratio of norms, median over seeds")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def last_caption(results: Results) -> str:
    """Where the nets end, and what became of their accuracy."""
    parts = []
    for kind in KINDS:
        scores = {blocks: results.accuracies(arm(kind, blocks)) for blocks in BLOCKS}
        means = [f"{np.mean(some):.1%}" if some else "diverged" for some in scores.values()]
        parts.append(f"{kind} {listed(means)}")
    return f"{_told(results, -1)} Test accuracy at {listed(BLOCKS)} blocks: {'; '.join(parts)}."


def jacobian(results: Results, pictures: Pictures) -> None:
    """What the Jacobian of each highway block is made of, before and after training."""
    title = f"The Jacobian of a highway block, {SHOWN} blocks"
    with pictures.figure("jacobian", (11, 4.4), title, jacobian_caption(results)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        _twice(panels, results, _jacobian)
        panels[0].set_ylabel("mean, or factor on the length of a gradient")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def _jacobian(axes: Any, values: Callable[[str], np.ndarray]) -> None:
    blocks = np.arange(1, SHOWN + 1)
    axes.plot(blocks, values("identity"), color=BLUE, label="1 - T, by the formula")
    axes.plot(blocks, values("diagonal"), "o", color="black", ms=4, mfc="none", label="diagonal, as measured")
    axes.plot(blocks, values("rest"), color=ORANGE, label="all but 1 - T")
    axes.set_ylim(bottom=0)


def jacobian_caption(results: Results) -> str:
    """What the identity part is in the Jacobian."""
    names = ("identity", "diagonal", "rest")
    parts = {name: by_block(results, "highway", SHOWN, name) for name in names}
    gap = np.abs(parts["identity"] - parts["diagonal"]).max(axis=1)
    told = [
        f"{when} training 1 - T is {ranged(parts['identity'][time])} over the blocks, at most {gap[time]:.3f} from the "
        f"mean diagonal that was measured, and the rest scales a gradient by {ranged(parts['rest'][time])}."
        for when, time in (("Before", 0), ("After", -1))
    ]
    return (
        f"{' '.join(told)} The whole Jacobian by the formula is within {worst(results, SHOWN):.1g} of the measured "
        "one, relative to its norm, at every block, image and epoch."
    )


def paths(results: Results, pictures: Pictures) -> None:
    """How much of a gradient gets from the last block to each one, in all and by 1 - T alone."""
    title = f"A gradient on its way down, {SHOWN} highway blocks"
    with pictures.figure("paths", (11, 4.4), title, paths_caption(results)) as figure:
        panels = figure.subplots(1, 2, sharey=True)
        _twice(panels, results, _paths)
        panels[0].set_ylabel("factor on the length of a gradient")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def _paths(axes: Any, values: Callable[[str], np.ndarray]) -> None:
    blocks = np.arange(1, SHOWN + 1)
    axes.plot(blocks, values("gain"), color="black", label="all paths, as measured")
    axes.plot(blocks, values("path"), color=BLUE, label="1 - T alone")
    axes.axhline(1, color=GREY, ls="--", lw=1)
    axes.set_yscale("log")


def paths_caption(results: Results) -> str:
    """What gets from the output of the last block to the input of the first."""
    gain, path = (by_block(results, "highway", SHOWN, name)[:, 0] for name in ("gain", "path"))
    told = [
        f"{when} training all {SHOWN} blocks together scale a gradient by {gain[time]:.2g}, 1 - T alone by "
        f"{path[time]:.2g}."
        for when, time in (("Before", 0), ("After", -1))
    ]
    return f"From the output of the last block to the input of each. {' '.join(told)}"


def _twice(panels: Any, results: Results, draw: Callable[[Any, Callable[[str], np.ndarray]], None]) -> None:
    """The same panel before and after training."""
    for axes, time, name in zip(panels, (0, -1), ("before training", "after training"), strict=True):
        draw(axes, lambda quantity, time=time: by_block(results, "highway", SHOWN, quantity)[time])
        _blocks_below(axes)
        axes.set_title(name)


def _blocks_below(axes: Any) -> None:
    axes.set_xlabel("block, from the input")
    axes.xaxis.set_major_locator(MaxNLocator(7, integer=True, min_n_ticks=1))


def _arm(kind: str, blocks: int) -> Arm:
    known = depth_contrast.STUDY.arms[depth_contrast.arm("plain" if kind == "residual" else kind, blocks)]
    model = known.config.model
    tags = known.provenance
    if kind == "residual":
        model = model.model_copy(update={"preset": model.preset.replace("plain", kind)})
        tags = Provenance(
            recorded=tuple(field for field in tags.recorded if not field.startswith("model.")),
            assumed=(*tags.assumed, *(field for field in tags.recorded if field.startswith("model."))),
        )
    config = known.config.model_copy(update={"recipe": arm(kind, blocks), "model": model})
    return Arm(config=config, provenance=tags)


STUDY = Study(
    name="gradients",
    title="Gradients through deep nets",
    source="a study in numpy on a subset of MNIST, and arXiv 1507.06228, section 2",
    asks="how much of the gradient gets to the first block, and what part of it comes through 1 - T?",
    arms={arm(kind, blocks): _arm(kind, blocks) for blocks in BLOCKS for kind in KINDS},
    seeds=3,
    differs=(
        "The source has the formula and no figures. Nets and training are those of depth-contrast, and what is said "
        "there holds here; residual nets are not in the source.",
        f"Gradients are those of the mean loss over {flow.EXAMPLES} training images, Jacobians those of {flow.FEW}, "
        f"measured by central differences of {flow.STEP:g} in float32.",
    ),
    tables=tabulated,
    draw=drawn,
    watch=flow.watched,
)
