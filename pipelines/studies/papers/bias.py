"""A map of dense highway nets over depth and gate bias, from very low to high biases.

Command     highway reproduce bias
Net         one plain and 9 to 299 highway layers of 50 ReLU units, gate bias from -20 to 10, and a softmax; and the
            plain layer alone
Data        MNIST, all 60,000 training images
Published   very low and very high biases fail to converge in reasonable time; no figures (a TensorFlow study of 2015)
Sources     width, activation and data are recorded. Depths and biases are assumed, and so is the training, which is
            that of the 1,000-layer nets: Adam 1e-3, batch 128, three epochs, normalized initialization of the kernels
Measured    docs/results/bias
"""

import math
from typing import Any

import numpy as np
from matplotlib.colors import LogNorm

from pipelines.core.config import Config, ModelConfig, Provenance
from pipelines.core.optimizers import Adam
from pipelines.core.plotting import GREY, heat_map, shades
from pipelines.studies.framework import tables
from pipelines.studies.framework.curves import LOSS_TITLE, Line, loss_panels
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import MNIST, Arm, Study
from pipelines.studies.framework.tables import MISSING, Table

DEPTHS = (10, 30, 100, 300)
"""Hidden layers; the first is plain."""
BIASES = (-20.0, -10.0, -6.0, -4.0, -2.0, 0.0, 2.0, 10.0)
ALONE = "1-layer"
"""The plain layer without any block: the function of a net whose gates are all closed."""
ASSUMED = (
    "model.depth",
    "optimizer.name",
    "optimizer.learning_rate",
    "epochs",
    "batch_size",
    "precision",
)


def arm(depth: int, bias: float) -> str:
    """The name of an arm."""
    return f"{depth}-layers-bias{bias:+g}"


def make_tables(results: Results) -> list[Table]:
    """Tabulates accuracy and loss over depth and bias."""

    def over_depth(title: str, cell: Any, note: str | None = None) -> Table:
        rows = [(str(depth), *(cell(arm(depth, bias)) for bias in BIASES)) for depth in DEPTHS]
        rows.append(("1, no gates", cell(ALONE), *(MISSING,) * (len(BIASES) - 1)))
        head = ("layers", *(f"bias {bias:g}" for bias in BIASES))
        return Table(title, head, tuple(rows), f"{note or tables.score_format(rows)}. The source gives no numbers")

    return [
        over_depth("Accuracy on test images, in percent", results.accuracy),
        over_depth(
            LOSS_TITLE,
            results.loss,
            "mean over the epoch, during which weights still change" + (", and over seeds" if results.several else ""),
        ),
    ]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws all figures of the study; none if every run diverged."""
    if any(results.accuracies(arm(*key)) for key in _all()):
        chart(results, figures)
        with figures.figure("training", (11.5, 4.0), "Training loss by gate bias") as figure:
            colours = dict(zip(BIASES, shades(len(BIASES)), strict=True))
            alone = Line(ALONE, "1 layer, no gates", "black", ":")
            loss_panels(
                figure,
                results,
                {
                    f"{depth} layers": [
                        *(Line(arm(depth, bias), f"bias {bias:g}", shade) for bias, shade in colours.items()),
                        alone,
                    ]
                    for depth in DEPTHS
                },
            )
        opened(results, figures)


def chart(results: Results, figures: Figures) -> None:
    """Draws the map: test accuracy and training loss of every depth at every bias."""
    accuracy = _grid({key: results.accuracies(arm(*key)) for key in _all()})
    loss = _grid({key: results.final_losses(arm(*key)) for key in _all()})
    caption = "Means over seeds." if results.several else ""
    with figures.figure("bias_map", (11.5, 3.9), "Gate bias and depth", caption) as figure:
        sides = figure.subplots(1, 2)
        # Brighter is better in both panels.
        for axes, values, title, options, form in (
            (sides[0], 100 * accuracy, "test accuracy, %", {}, ".1f"),
            (sides[1], loss, "training loss, last epoch", {"cmap": "viridis_r", "norm": LogNorm()}, ".2g"),
        ):
            mesh = heat_map(axes, np.ma.masked_invalid(values), first=(0, 0), **options)
            axes.set_facecolor("lightgrey")
            axes.set_xticks(range(len(BIASES)), [f"{bias:g}" for bias in BIASES])
            axes.set_yticks(range(len(DEPTHS)), [str(depth) for depth in DEPTHS])
            axes.set_xlabel("initial gate bias")
            axes.set_title(title)
            for (row, column), value in np.ndenumerate(values):
                text = cell(results, arm(DEPTHS[row], BIASES[column]), value, form)
                # The green channel separates dark from light.
                colour = "black" if math.isnan(value) or mesh.to_rgba([value])[0, 1] > 0.5 else "white"
                size = 7 if math.isnan(value) else 8.5
                axes.text(column, row, text, ha="center", va="center", fontsize=size, color=colour)
            figure.colorbar(mesh, ax=axes)
        sides[0].set_ylabel("layers")


def cell(results: Results, name: str, value: float, form: str) -> str:
    """The text in an arm's cell of the map: its value, or why it has none."""
    if math.isnan(value):
        return "diverged" if results.lost(name) else MISSING
    return f"{value:{form}}"


def _all() -> list[tuple[int, float]]:
    return [(depth, bias) for depth in DEPTHS for bias in BIASES]


def _grid(values: dict[tuple[int, float], list[float]]) -> np.ndarray:
    """Means over seeds, float [depths, biases]; NaN where every run diverged."""
    means = [float(np.mean(some)) if some else math.nan for some in values.values()]
    return np.array(means).reshape(len(DEPTHS), len(BIASES))


def opened(results: Results, figures: Figures) -> None:
    """Draws the mean gate after training over the initial bias, for each depth."""
    with figures.figure("gates", (8.2, 4.6), "Mean transform gate by gate bias") as figure:
        axes = figure.subplots()
        for depth, shade in zip(DEPTHS, shades(len(DEPTHS)), strict=True):
            gates = {bias: results.gates(arm(depth, bias)) for bias in BIASES}
            means = {bias: float(T[:, -1].mean()) for bias, T in gates.items() if T.size}
            axes.plot(list(means), list(means.values()), "o-", ms=4, color=shade, label=f"{depth}")
        line = np.linspace(min(BIASES), max(BIASES), 200)
        axes.plot(line, 1 / (1 + np.exp(-line)), color=GREY, ls="--", lw=1, label="sigmoid of the bias")
        axes.set_yscale("log")
        axes.set_xlabel("initial gate bias")
        axes.set_ylabel("mean of T after training")
        axes.legend(title="layers", loc="lower right", fontsize=9)


def _arm(name: str, depth: int, bias: float | None) -> Arm:
    return Arm(
        config=Config(
            recipe=name,
            model=ModelConfig(preset="mnist_dense_50", depth=depth, transform_bias=bias, activation="relu"),
            data="mnist",
            optimizer=Adam(learning_rate=0.001),
            epochs=3,
            batch_size=128,
            precision="float32",
        ),
        provenance=Provenance(
            recorded=("model.preset", "model.activation", "data"),
            assumed=ASSUMED if bias is None else ("model.transform_bias", *ASSUMED),
        ),
        data=MNIST,
    )


STUDY = Study(
    name="bias",
    title="Gate biases from low to high, over depth",
    source="a TensorFlow study of 2015, and arXiv 1507.06228, section 2.2",
    asks="which initial gate biases let a highway net learn, and how does that depend on depth?",
    arms={
        ALONE: _arm(ALONE, 1, None),
        **{arm(depth, bias): _arm(arm(depth, bias), depth, bias) for depth, bias in _all()},
    },
    seeds=3,
    differs=(
        "The source says that very low and very high biases fail to converge in reasonable time, without depths, "
        "biases or numbers. Here, reasonable time is three epochs.",
        "Optimizer, batch size and epochs are those of the nets of 1,000 layers; the source names none.",
        "The net without blocks, to compare with nets of closed gates, is ours.",
    ),
    tables=make_tables,
    draw=draw_figures,
)
