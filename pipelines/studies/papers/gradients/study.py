"""Gradient flow through plain, residual and highway nets, at initialization and during training.

Command     highway reproduce gradients
Net         nets of depth-contrast with 10, 30 and 50 blocks: a projection from 784 to 50 tanh units, then blocks of 50
            tanh units, highway (gate bias -2), residual (x + H) or plain, and a softmax; weights U(±1/sqrt(fan_in))
Data        the 6,000 training and 2,000 test images of MNIST in depth-contrast
Published   only the formula: dy/dx = diag(1 - T) + diag(T) dH/dx + diag(H - x) dT/dx, whose first part does not depend
            on the weights
Sources     the training is recorded, see depth-contrast; the residual nets are our addition
Measured    docs/results/gradients
"""

from pipelines.core.config import Provenance
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.papers.gradients import figures as drawings
from pipelines.studies.papers.gradients import flow
from pipelines.studies.papers.gradients.reading import BLOCKS, KINDS, SHOWN, by_block, reach, worst
from pipelines.studies.shared.numpy_study import ARMS, DRAWS, arm


def make_tables(results: Results) -> list[Table]:
    """Tabulates how far gradients reach, and the Jacobians against the formula."""
    reached, scaled = [], []
    medians = ", medians over seeds" if results.several else ""
    for blocks in BLOCKS:
        for kind in KINDS:
            row = (f"{kind}, {blocks}", *_norms(results, kind, blocks), results.accuracy(arm(kind, blocks)))
            reached.append(row)
        scaled.append((str(blocks), *_jacobians(results, blocks)))
    return [
        Table(
            "Gradient of the loss (kernel of H), and factor of all blocks",
            (
                "net, blocks",
                *(f"{place}, {time}" for time in ("before", "after") for place in ("first block", "last", "factor")),
                "test accuracy, in percent",
            ),
            tuple(reached),
            f"norms before and after training, over {flow.EXAMPLES} training images{medians}. Factor: on the length "
            "of a gradient of random direction on its way through all blocks. The source has no numbers",
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
            tuple(scaled),
            f"before and after training; means over the blocks{medians}. Error: norm of the difference between "
            "the Jacobian by the formula and the one measured by finite differences, relative to the latter, "
            f"at the worst block and image of {flow.FEW}, before training and after each epoch",
        ),
    ]


def _norms(results: Results, kind: str, blocks: int) -> list[str]:
    """Norms in the first and last block, and the factor of all blocks, before and after training."""
    kernels, factors = by_block(results, kind, blocks, "kernel"), reach(results, kind, blocks)
    if not len(factors):
        return [MISSING] * 6
    return [f"{value:.2g}" for time in (0, -1) for value in (kernels[time, 0], kernels[time, -1], factors[time])]


def _jacobians(results: Results, blocks: int) -> list[str]:
    """Means over blocks and factors of all blocks, before and after training, and the worst error."""
    found = {name: by_block(results, "highway", blocks, name) for name in ("identity", "diagonal", "gain", "path")}
    if not len(found["identity"]):
        return [MISSING] * 9
    cells = []
    for time in (0, -1):
        cells += [f"{found[name][time].mean():.3f}" for name in ("identity", "diagonal")]
        cells += [f"{found[name][time, 0]:.2g}" for name in ("gain", "path")]
    return [*cells, f"{worst(results, blocks):.1g}"]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study."""
    drawings.at_start(results, figures)
    if any(len(by_block(results, kind, SHOWN, "kernel")) for kind in KINDS):
        drawings.through_training(results, figures)
    drawings.all_blocks(results, figures)
    if len(by_block(results, "highway", SHOWN, "identity")):
        drawings.jacobian(results, figures)
        drawings.paths(results, figures)


def _arm(kind: str, blocks: int) -> Arm:
    known = ARMS[arm("plain" if kind == "residual" else kind, blocks)]
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
    source="a NumPy study on a subset of MNIST, and arXiv 1507.06228, section 2",
    asks="how much of the gradient reaches the first block, and how much of it comes through 1 - T?",
    arms={arm(kind, blocks): _arm(kind, blocks) for blocks in BLOCKS for kind in KINDS},
    seeds=3,
    draws=DRAWS,
    differs=(
        "The source has the formula and no numbers. Nets and training are those of depth-contrast, with the "
        "differences named there; the source has no residual nets.",
        f"Gradients are of the mean loss over {flow.EXAMPLES} training images; Jacobians are measured on {flow.FEW} "
        f"images by central differences of {flow.STEP:g} in float32.",
    ),
    tables=make_tables,
    draw=draw_figures,
    probe=flow.probe,
)
