"""What low and high gate biases do to dense highway nets, over depth: a map.

Command     highway reproduce bias
Net         one plain and 9 to 299 highway layers of 50 ReLU units, gate bias from -20 to 10, and a softmax; beside them
            the plain layer alone
Data        MNIST, all 60 000 training images
Published   of biases that they fail to converge in reasonable time where they are very low or very high, without a
            figure (a TensorFlow study of 2015)
Sources     width, activation and data are recorded. The training is that of the nets of 1 000 layers: Adam 1e-3, batch
            128, three epochs, kernels by normalised initialisation; it is assumed, as are depths and biases
Measured    seed 0: nets of 10 layers learn at every bias (95.3 to 96.3 % of the test images), those of 100 at -4 and
            below, those of 300 at -6 and below (docs/results/bias); Keras 3.15.1, JAX 0.10.2, float32, two cores of an
            AMD EPYC with avx512_bf16
"""

import math
from collections.abc import Iterable

import numpy as np
from matplotlib.colors import LogNorm
from matplotlib.ticker import MaxNLocator, NullFormatter, PercentFormatter

from pipelines.core.config import Adam, Config, ModelConfig, Provenance
from pipelines.core.plotting import GREY, shades
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.framework.words import listed, ranged

DEPTHS = (10, 30, 100, 300)
"""Hidden layers; the first is plain."""
BIASES = (-20.0, -10.0, -6.0, -4.0, -2.0, 0.0, 2.0, 10.0)
ALONE = "1-layer"
"""The plain layer without any block: what a net is whose gates let nothing through."""
GUESS = 0.15
"""Accuracy up to which a net is said to guess: always naming the commonest of the ten digits makes 0.11."""
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


def tabulated(results: Results) -> list[Table]:
    """Accuracy and loss over depth and bias."""
    head = ("layers", *(f"bias {bias:g}" for bias in BIASES))
    accuracy, loss = _accuracy(results, ALONE), _loss(results, ALONE)
    missing = (MISSING,) * (len(BIASES) - 1)
    return [
        Table(
            "Accuracy on test images, in percent",
            head,
            (
                *((str(depth), *(_accuracy(results, arm(depth, bias)) for bias in BIASES)) for depth in DEPTHS),
                ("1, no gates", accuracy, *missing),
            ),
            "best (mean +- standard deviation over seeds, n = runs). The source gives no figures",
        ),
        Table(
            f"Training loss in the last epoch; guessing makes ln 10 = {math.log(10):.3f}",
            head,
            (
                *((str(depth), *(_loss(results, arm(depth, bias)) for bias in BIASES)) for depth in DEPTHS),
                ("1, no gates", loss, *missing),
            ),
            "mean over seeds of the mean over the epoch, in which the weights still change. The source gives no "
            "figures",
        ),
    ]


def _accuracy(results: Results, name: str) -> str:
    return tables.measured(results.accuracies(name), len(results.of(name)))


def _loss(results: Results, name: str) -> str:
    return tables.mean(_last(results, name))


def _last(results: Results, name: str) -> list[float]:
    """The training loss in the last epoch, of each run."""
    return [float(losses[-1]) for losses in results.curves(name, "loss")]


def drawn(results: Results, figures: Figures) -> None:
    """All figures of the study; the tables tell it if every run diverged."""
    if any(results.accuracies(arm(*key)) for key in _all()):
        chart(results, figures)
        training(results, figures)
        opened(results, figures)


def chart(results: Results, figures: Figures) -> None:
    """The map: test accuracy and training loss of every depth at every bias."""
    accuracy = _grid({key: results.accuracies(arm(*key)) for key in _all()})
    loss = _grid({key: _last(results, arm(*key)) for key in _all()})
    with figures.figure("bias_map", (11.5, 3.9), "Gate bias and depth", chart_caption(results)) as figure:
        sides = figure.subplots(1, 2)
        # What is better is brighter on both.
        for axes, values, title, colours, norm, form in (
            (sides[0], accuracy, "test accuracy", "viridis", None, ".1%"),
            (sides[1], loss, "training loss, last epoch", "viridis_r", LogNorm(), ".2g"),
        ):
            mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=norm)
            axes.set_facecolor("lightgrey")
            axes.grid(visible=False)
            axes.set_xticks(np.arange(len(BIASES)) + 0.5, [f"{bias:g}" for bias in BIASES])
            axes.set_yticks(np.arange(len(DEPTHS)) + 0.5, [str(depth) for depth in DEPTHS])
            axes.set_xlabel("initial gate bias")
            axes.set_title(title)
            for (row, column), value in np.ndenumerate(values):
                told = written(results, arm(DEPTHS[row], BIASES[column]), value, form)
                # The green channel tells dark from light.
                colour = "black" if math.isnan(value) or mesh.to_rgba([value])[0, 1] > 0.5 else "white"
                size = 7 if math.isnan(value) else 8.5
                axes.text(column + 0.5, row + 0.5, told, ha="center", va="center", fontsize=size, color=colour)
        sides[0].set_ylabel("layers")
        figure.colorbar(sides[0].collections[0], ax=sides[0], format=PercentFormatter(1.0))
        figure.colorbar(sides[1].collections[0], ax=sides[1])


def written(results: Results, name: str, value: float, form: str) -> str:
    """What stands in the map of an arm: its value, or why it has none."""
    if math.isnan(value):
        return "diverged" if results.lost(name) else MISSING
    return f"{value:{form}}".rstrip("%")


def _all() -> list[tuple[int, float]]:
    return [(depth, bias) for depth in DEPTHS for bias in BIASES]


def _grid(values: dict[tuple[int, float], list[float]]) -> np.ndarray:
    """Means over seeds, float [depths, biases]; NaN where every run diverged."""
    means = [float(np.mean(some)) if some else math.nan for some in values.values()]
    return np.array(means).reshape(len(DEPTHS), len(BIASES))


def chart_caption(results: Results) -> str:
    """What the runs show of accuracy over depth and bias."""
    parts = []
    for depth in DEPTHS:
        runs = {bias: results.accuracies(arm(depth, bias)) for bias in BIASES}
        guessing = [bias for bias, scores in runs.items() if scores and max(scores) <= GUESS]
        learning = {bias: float(np.mean(scores)) for bias, scores in runs.items() if scores and bias not in guessing}
        diverged = [bias for bias in BIASES if results.lost(arm(depth, bias))]
        clauses = []
        if learning:
            best = max(learning, key=learning.__getitem__)
            reached = ranged(learning.values(), ".1%")
            clauses.append(f"biases of {_told(learning)} reach {reached}, the most at {best:g}")
        if guessing:
            clauses.append(f"those of {_told(guessing)} guess")
        if diverged:
            clauses.append(f"those of {_told(diverged)} diverge")
        parts += [f"At {depth} layers {'; '.join(clauses)}."] if clauses else []
    alone, low = results.accuracies(ALONE), [results.accuracies(arm(depth, BIASES[0])) for depth in DEPTHS]
    if alone and all(low):
        ended = ranged([float(np.mean(scores)) for scores in low], ".1%")
        parts.append(
            f"With the lowest bias, {BIASES[0]:g}, nets of {listed(DEPTHS)} layers end at {ended}; the plain layer "
            f"without any block ends at {np.mean(alone):.1%}."
        )
    return f"Means over seeds; a net is said to guess if no run is above {GUESS:.0%}. {' '.join(parts)}"


def _told(biases: Iterable[float]) -> str:
    return listed(f"{bias:g}" for bias in biases)


def training(results: Results, figures: Figures) -> None:
    """Training loss over epochs, a panel for each depth and a line for each bias."""
    with figures.figure("training", (11.5, 4.0), "Training loss by gate bias", training_caption(results)) as figure:
        panels = figure.subplots(1, len(DEPTHS), sharey=True)
        for axes, depth in zip(panels, DEPTHS, strict=True):
            for bias, shade in zip(BIASES, shades(len(BIASES)), strict=True):
                losses = results.curves(arm(depth, bias), "loss")
                if losses.size:
                    epochs = np.arange(1, losses.shape[1] + 1)
                    axes.plot(epochs, losses.mean(axis=0), color=shade, marker="o", ms=4, label=f"bias {bias:g}")
            alone = results.curves(ALONE, "loss")
            if alone.size:
                epochs = np.arange(1, alone.shape[1] + 1)
                axes.plot(epochs, alone.mean(axis=0), "k:", lw=1.2, label="1 layer, no gates")
            axes.axhline(math.log(10), color=GREY, ls="--", lw=1, label="guessing, ln 10")
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")
            axes.yaxis.set_minor_formatter(NullFormatter())
            axes.xaxis.set_major_locator(MaxNLocator(4, integer=True, min_n_ticks=1))
            axes.set_xlabel("epoch")
            axes.set_title(f"{depth} layers")
        panels[0].set_ylabel("training loss, mean over seeds")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", fontsize=9)


def training_caption(results: Results) -> str:
    """What the runs show of the training loss in the last epoch."""
    told = []
    for depth in DEPTHS:
        known = {bias: results.curves(arm(depth, bias), "loss") for bias in BIASES}
        last = {bias: float(losses[:, -1].mean()) for bias, losses in known.items() if losses.size}
        if last:
            best, worst = min(last, key=last.__getitem__), max(last, key=last.__getitem__)
            told.append(
                f"{depth} layers from {last[best]:.3f} at a bias of {best:g} to {last[worst]:.3f} at one of {worst:g}"
            )
    return f"The mean loss of the last epoch goes, for {'; '.join(told)}."


def opened(results: Results, figures: Figures) -> None:
    """The mean gate after training over the initial bias, for each depth."""
    with figures.figure("gates", (8.2, 4.6), "Mean transform gate by gate bias", opened_caption(results)) as figure:
        axes = figure.subplots()
        for depth, shade in zip(DEPTHS, shades(len(DEPTHS)), strict=True):
            means = _means(results, depth)
            axes.plot(list(means), [after for _, after in means.values()], "o-", ms=4, color=shade, label=f"{depth}")
        line = np.linspace(min(BIASES), max(BIASES), 200)
        axes.plot(line, 1 / (1 + np.exp(-line)), color=GREY, ls="--", lw=1, label="sigmoid of the bias")
        axes.set_yscale("log")
        axes.set_xlabel("initial gate bias")
        axes.set_ylabel("mean of T after training")
        axes.legend(title="layers", loc="lower right", fontsize=9)


def _means(results: Results, depth: int) -> dict[float, tuple[float, float]]:
    """The mean of T over blocks, examples and seeds before and after training, by bias."""
    gates = {bias: results.gates(arm(depth, bias)) for bias in BIASES}
    return {bias: (float(T[:, 0].mean()), float(T[:, -1].mean())) for bias, T in gates.items() if T.size}


def opened_caption(results: Results) -> str:
    """What the gates did in training."""
    told = []
    for depth in DEPTHS:
        means = _means(results, depth)
        if means:
            low, high = min(means), max(means)
            told.append(
                f"{depth} layers from {means[low][0]:.2g} to {means[low][1]:.2g} at a bias of {low:g} and from "
                f"{means[high][0]:.2g} to {means[high][1]:.2g} at one of {high:g}"
            )
    return f"The mean of T over blocks, examples and seeds. In training it goes, for {'; '.join(told)}."


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
        data=Counts(train=60000, test=10000),
    )


STUDY = Study(
    name="bias",
    title="Low and high gate biases over depth",
    source="a TensorFlow study of 2015, and arXiv 1507.06228, section 2.2",
    asks="which initial gate biases let a highway net learn, and how does that change with its depth?",
    arms={
        ALONE: _arm(ALONE, 1, None),
        **{arm(depth, bias): _arm(arm(depth, bias), depth, bias) for depth, bias in _all()},
    },
    seeds=3,
    differs=(
        "The source says that very low and very high biases fail to converge in reasonable time, and gives neither "
        "depths and biases nor figures. Here reasonable time is three epochs.",
        "Optimiser, batch size and epochs are those of the nets of 1 000 layers; the source names none.",
        "The net without any block, beside which those of closed gates are put, is ours.",
    ),
    tables=tabulated,
    draw=drawn,
)
