"""Optimization of highway and plain nets of 10 to 100 layers: Srivastava, Greff, Schmidhuber 2015, Figures 1 and 5.

Command     highway reproduce optimization
Net         one plain layer, then 9, 19, 49 or 99 highway layers of 50 units or plain layers of 71, both with about
            5,000 parameters per layer, and a softmax
Data        MNIST; 5,000 training images are held out for a validation accuracy that is reported but chooses nothing
Search      100 random settings for each of the eight nets: learning rate, momentum, decay, activation and, for
            highway nets, the gate bias
Published   curves, and the text: highway nets of 50 and 100 layers do as well as those of 10 and 20; plain nets of 10
            and 20 layers reach less than 1e-4, deeper ones fail, at 100 layers by more than two orders of magnitude
Sources     data, nets, SGD with momentum, exponential decay, normalized initialization, the searched settings, the
            bounds of the gate bias (-10 to -1) and 100 runs each are recorded; the other bounds, batch size and epochs
            are assumed
Measured    docs/results/optimization
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pipelines.core.config import Config, ModelConfig, Provenance
from pipelines.core.optimizers import SGD, ExponentialSchedule
from pipelines.core.plotting import BLUE, GREY, ORANGE, legend, loss_axis, shades, whole_ticks
from pipelines.recipes import dense
from pipelines.studies.framework.curves import GUESSING, mark_guessing
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.study import MNIST, Arm, Counts, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.framework.trials import Trials, Tried

DEPTHS = (10, 20, 50, 100)
PRESETS = {"highway": "mnist_dense_50", "plain": "mnist_dense_50_plain"}
KINDS = tuple(PRESETS)
VALIDATION = 5000
SETTINGS = 100
"""Number of settings drawn for each net."""
BEST = 10
"""Number of settings per net in the mean, as in the paper."""
COLOURS = {"highway": BLUE, "plain": ORANGE}
CLOSE = 0.02
"""Margin in nats: a net has learned if its loss is below that of guessing by more than this."""
SAID = {
    10: "plain nets below 1e-4",
    20: "plain nets below 1e-4",
    50: "highway nets as at 10 and 20, plain nets fail",
    100: "highway nets as at 10 and 20, plain nets above 100 times their loss",
}


def arm(kind: str, depth: int) -> str:
    """The name of an arm."""
    return f"{kind}-{depth}"


def make_tables(trials: Trials) -> list[Table]:
    """Tabulates losses over depth next to the source's text, outcomes of all settings, and the best settings."""
    return [
        Table(
            "Training loss in the last epoch",
            (
                "layers",
                *(f"{kind}, {which}" for which in ("best", f"mean of {BEST}") for kind in (*KINDS, "plain / highway")),
                "the source",
            ),
            tuple(_losses(trials, depth) for depth in DEPTHS),
            f"of the best setting and of the {BEST} best settings (or of all, if fewer are left). Mean over the epoch, "
            "during which weights still change. The source prints curves and this text, no numbers",
        ),
        Table(
            "Outcome of the settings",
            ("net", "drawn", "finished", "learned", "failed", "reason"),
            tuple(_fates(trials, name) for name in STUDY.arms),
            f"learned: the training loss in the last epoch is more than {CLOSE} below that of guessing, "
            f"ln 10 = {GUESSING:.3f}",
        ),
        Table(
            "The best setting of each net",
            (
                "net",
                "trial",
                *map(_named, trials.names),
                "training loss",
                "validation accuracy",
            ),
            tuple(_setting(name, trials) for name in STUDY.arms),
            "best: by the training loss in the last epoch; the validation accuracy is that of its best epoch",
        ),
    ]


def _losses(trials: Trials, depth: int) -> tuple[str, ...]:
    best, mean = ({kind: _end(trials, arm(kind, depth), count) for kind in KINDS} for count in (1, BEST))
    cells = [
        cell
        for ends in (best, mean)
        for cell in (*(_short(ends[kind]) for kind in KINDS), _ratio(ends["plain"], ends["highway"]))
    ]
    return (str(depth), *cells, SAID[depth])


def _fates(trials: Trials, name: str) -> tuple[str, ...]:
    ended, reasons = trials.ranked(name), trials.reasons(name)
    why = "; ".join(f"{reason.rstrip('.')} ({count})" for reason, count in Counter(reasons).most_common())
    counts = (len(trials.of(name)), len(ended), len(_learned(ended)), len(reasons))
    return (name, *map(str, counts), why or MISSING)


def _setting(name: str, trials: Trials) -> tuple[str, ...]:
    ranked = trials.ranked(name)
    if not ranked:
        return (name, *(MISSING,) * (len(trials.names) + 3))
    best = ranked[0]
    values = [best.values.get(value, MISSING) for value in trials.names]
    drawn = (f"{value:.3g}" if isinstance(value, float) else str(value) for value in values)
    return (name, best.number, *drawn, _short(best.loss), f"{best.score:.2%}")


def draw_figures(trials: Trials, figures: Figures) -> None:
    """Draws both figures of the study."""
    curves(trials, figures)
    settings(trials, figures)


def curves(trials: Trials, figures: Figures) -> None:
    """Draws training loss over epochs: the best setting of each net and the mean of its ten best."""
    losses = {name: [tried.losses for tried in trials.ranked(name)] for name in STUDY.arms}
    if any(losses.values()):
        title = "Training loss of highway and plain nets by depth"
        caption = "Best: by the training loss in the last epoch. In brackets: the number of settings in the mean."
        with figures.figure("training_curves", (11, 4.6), title, caption) as figure:
            draw_losses(figure, losses)


def draw_losses(figure: Figure, losses: Mapping[str, Sequence[np.ndarray]]) -> None:
    """Draws the best setting of each net and the mean of its ten best, as in the paper's Figure 1.

    Args:
        figure: an empty figure.
        losses: losses of each arm's settings, best first, float [epochs] each; may be empty.
    """
    left, right = figure.subplots(1, 2, sharey=True)
    depths = len(DEPTHS)
    colours = shades(depths)
    for number, (name, trials) in enumerate(losses.items()):
        if not trials:
            continue
        best = trials[:BEST]
        style = {
            "color": colours[number % depths],
            "ls": "-" if number < depths else "--",
            "marker": "o" if number < depths else "s",
            "ms": 3,
            "label": f"{name} ({len(best)})",
        }
        shortest = min(map(len, best))
        epochs = np.arange(1, shortest + 1)
        left.plot(epochs, best[0][:shortest], **style)
        right.plot(epochs, np.mean([loss[:shortest] for loss in best], axis=0), **style)
    for axes, title in ((left, "best trial of each net"), (right, f"mean of the {BEST} best trials, or all if fewer")):
        axes.set_xlabel("epoch")
        whole_ticks(axes.xaxis)
        axes.set_title(title)
    loss_axis(left)
    left.set_ylabel("training loss")
    figure.legend(*left.get_legend_handles_labels(), loc="outside right center", fontsize=9, handlelength=3.5)


def settings(trials: Trials, figures: Figures) -> None:
    """Draws the training loss in the last epoch of every setting, by net; failed settings are above all others."""
    caption = "Crosses, at the top: settings that failed and have no loss."
    with figures.figure("every_setting", (9, 4.8), "Every setting", caption) as figure:
        axes = figure.subplots()
        top = 3 * max((tried.loss for name in STUDY.arms for tried in trials.ranked(name)), default=GUESSING)
        jitter = np.random.default_rng(0)
        for shift, kind in zip((-0.18, 0.18), KINDS, strict=True):
            for place, depth in enumerate(DEPTHS):
                tried = trials.of(arm(kind, depth))
                places = place + shift + jitter.uniform(-0.11, 0.11, len(tried))
                heights = np.array([top if one.score is None else one.loss for one in tried])
                failed = np.array([one.score is None for one in tried], bool)
                label = kind if place == 0 else None
                axes.plot(places[~failed], heights[~failed], "o", ms=4, color=COLOURS[kind], alpha=0.6, label=label)
                axes.plot(places[failed], heights[failed], "x", ms=5, color=COLOURS[kind], alpha=0.8)
        mark_guessing(axes)
        axes.plot([], [], "x", ms=5, color=GREY, label="failed")
        loss_axis(axes)
        axes.set_ylabel("training loss in the last epoch")
        axes.set_xticks(range(len(DEPTHS)), [f"{depth} layers" for depth in DEPTHS])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.grid(visible=False, axis="x")
        legend(figure)


def _learned(tried: Sequence[Tried]) -> list[Tried]:
    return [one for one in tried if one.loss < GUESSING - CLOSE]


def _end(trials: Trials, name: str, count: int) -> float | None:
    """Mean training loss in the last epoch over the best settings of an arm; None if all failed."""
    best = [tried.loss for tried in trials.ranked(name)[:count]]
    return sum(best) / len(best) if best else None


def _ratio(plain: float | None, highway: float | None) -> str:
    return f"{plain / highway:.2g}" if plain and highway else MISSING


def _short(loss: float | None) -> str:
    return MISSING if loss is None else f"{loss:.3g}"


def _named(value: str) -> str:
    return "gate bias" if value == "transform_bias" else value.replace("_", " ")


def _config(model: ModelConfig) -> Config:
    return Config(
        recipe="optimization",
        model=model,
        data="mnist",
        validation=VALIDATION,
        optimizer=SGD(momentum=0.9, nesterov=False),
        # 550 steps are one epoch.
        schedule=ExponentialSchedule(factor=0.95, decay_steps=550),
        epochs=40,
        batch_size=100,
        precision="float32",
    )


STUDY = Study(
    name="optimization",
    title="Optimization of highway and plain nets over depth",
    source="Srivastava, Greff, Schmidhuber 2015, section 3.1, Figures 1 and 5",
    asks="can nets of 10 to 100 layers be trained, if each may choose among many settings?",
    arms={
        arm(kind, depth): Arm(
            config=_config(ModelConfig(preset=preset, depth=depth)),
            provenance=Provenance(
                recorded=("model.preset", "model.depth", "data", "optimizer.name", "schedule.kind"),
                assumed=(
                    "validation",
                    "optimizer.learning_rate",
                    "optimizer.momentum",
                    "optimizer.nesterov",
                    "schedule.factor",
                    "schedule.decay_steps",
                    "epochs",
                    "batch_size",
                    "precision",
                ),
            ),
            data=Counts(train=MNIST.train - VALIDATION, test=MNIST.test),
        )
        for kind, preset in PRESETS.items()
        for depth in DEPTHS
    },
    seeds=SETTINGS,
    search=dense.SEARCH,
    tested=False,
    differs=(
        "The ranges of learning rate (0.001 to 1, log-uniform), momentum (0 to 0.99) and decay (0.8 to 1 per epoch), "
        "the batch size of 100 and the number of epochs are not published; they are assumed and were not chosen by "
        "results.",
        "55,000 training images; 5,000 are held out for the validation accuracy, which chooses no setting.",
        "All settings of a net share the seed of the weights and of the order of images.",
        "The source's losses are curves whose averaging is not recorded; here, a loss is the mean over an epoch.",
        "float32; the source's number format is not recorded.",
    ),
    tables=make_tables,
    draw=draw_figures,
)
