"""Plain, residual and highway convolutional nets with equally many parameters, and in equal training time.

Command     highway reproduce conv-gate --schedule full
            highway reproduce conv-gate --schedule short and python -m benchmarks gate_steps found the learning rates
            and the times of a step that it uses (`nets.NETS`)
Net         that of cifar10_modern with less than a third of its channels (192,795 parameters), and its twins without
            gates, widened to as many parameters (193,228)
Data        CIFAR-10; 5,000 of the training images are held out, and learning rates are chosen on them
Published   nothing
Sources     all numbers are ours: those of the recipe (`recipes.modern`), with 20 epochs
Measured    all of it, with three seeds (docs/results/conv-gate), and the learning rates (docs/results/conv-gate-short)
"""

import statistics
from collections.abc import Mapping

from pipelines.core.plotting import legend, log_ticks
from pipelines.studies.framework import tables
from pipelines.studies.framework.curves import Line, runs_and_mean, thin
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.papers.conv_gate import tuning
from pipelines.studies.papers.conv_gate.nets import EPOCHS, HELD_OUT, NETS, WIDTH, TunedNet, arm, equal_time

SEEDS = 3


def longer(net: str) -> str:
    """Returns the name of the arm in which a net trains for as long as the slowest one."""
    return f"{net}-longer"


def make_arms(nets: Mapping[str, TunedNet]) -> dict[str, Arm]:
    """Builds the arms: each net with `EPOCHS`, and again with more if its steps are faster than the slowest net's.

    Args:
        nets: the nets, by name.
    """
    epochs = equal_time({net: tuned.step for net, tuned in nets.items()})
    same = {net: arm(tuned, tuned.rate) for net, tuned in nets.items()}
    faster = [net for net in nets if epochs[net] > EPOCHS]
    return same | {longer(net): arm(nets[net], nets[net].rate, epochs[net]) for net in faster}


ARMS = make_arms(NETS)
EQUAL_EPOCHS = {net: net for net in NETS}
EQUAL_TIME = {net: longer(net) if longer(net) in ARMS else net for net in NETS}
CONDITIONS = {f"after {EPOCHS} epochs": EQUAL_EPOCHS, "in equal training time": EQUAL_TIME}
"""The arm of each net under each condition. All nets have equally many parameters."""


def make_tables(results: Results) -> list[Table]:
    """Tabulates the accuracy of each net, a table for each condition."""
    return [_accuracies(results, condition, arms) for condition, arms in CONDITIONS.items()]


def _accuracies(results: Results, condition: str, arms: Mapping[str, str]) -> Table:
    rows = tuple(
        (net, results.parameters(name), *_training(results, net, name), results.accuracy(name))
        for net, name in arms.items()
    )
    return Table(
        f"Accuracy on test images {condition}, in percent",
        ("net", "parameters", "learning rate", "epochs", "training, s", "accuracy"),
        rows,
        f"{tables.score_format(rows)}; training: steps times the time of a step on two cores of a CPU, measured in "
        "turns with the other nets (`python -m benchmarks gate_steps`)",
    )


def _training(results: Results, net: str, name: str) -> tuple[str, str, str]:
    """Returns learning rate, epochs and seconds of an arm."""
    if not (runs := results.of(name)):
        return (MISSING,) * 3
    config = runs[0].run.config
    steps = config.epochs * runs[0].run.record.steps_per_epoch
    return f"{config.optimizer.learning_rate:g}", str(config.epochs), f"{steps * NETS[net].step / 1000:.0f}"


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws the test accuracy of each run, and the error on held-out images during training."""
    caption = "Dots are single seeds, bars their means." if results.several else ""
    title = "Accuracy on test images, equally many parameters"
    with figures.figure("accuracies", (8.2, 4.4), title, caption) as figure:
        panels = figure.subplots(len(CONDITIONS), sharex=True)
        for axes, (condition, arms) in zip(panels, CONDITIONS.items(), strict=True):
            for row, (net, name) in enumerate(arms.items()):
                if runs := [100 * share for share in results.accuracies(name)]:
                    axes.plot(runs, [row] * len(runs), "o", color=NETS[net].colour, alpha=0.6)
                    if len(runs) > 1:
                        axes.plot(statistics.mean(runs), row, "|", color=NETS[net].colour, ms=18, mew=2)
            axes.set_yticks(range(len(NETS)), [_label(results, net, name) for net, name in arms.items()])
            axes.set_ylim(len(NETS) - 0.5, -0.5)
            axes.set_title(condition)
        panels[-1].set_xlabel("accuracy on test images, %")
    title = "Error on held-out images during training"
    with figures.figure("held_out", (8.2, 4.6), title, thin(results)) as figure:
        axes = figure.subplots()
        for net, name in EQUAL_TIME.items():
            shares = results.curves(name, tuning.SCORE)
            if shares.size:
                times = results.curves(name, "step")[0] * NETS[net].step / 1000
                runs_and_mean(axes, times, 100 * (1 - shares), Line(name, net, NETS[net].colour), marker="o", ms=3)
        log_ticks(axes.yaxis, lambda value, _: f"{value:g}%")
        axes.set_xlabel("seconds of training")
        axes.set_ylabel("error on held-out images")
        legend(figure)


def _label(results: Results, net: str, name: str) -> str:
    epochs = _training(results, net, name)[1]
    return net if epochs == MISSING else f"{net}, {epochs} epochs"


TITLE = "What a gate gives to a convolutional net"
SOURCE = "none"
QUESTION = (
    "which convolutional net is the most accurate with equally many parameters, and in equal training time: one with "
    "gates, with additions, or with neither?"
)
STUDY: Study[Results] = Study(
    name="conv-gate",
    title=TITLE,
    source=SOURCE,
    asks=QUESTION,
    arms=ARMS,
    seeds=SEEDS,
    differs=(
        "All nets have eleven layers with weights: four plain convolutions, six blocks, which have gates in the "
        "highway net, and the classifier. A residual block adds its input to the ReLU of its normalized convolution.",
        f"There is no source to compare with. Nets are trained as by `cifar10_modern`, with {EPOCHS} epochs in place "
        f"of 60 and without {HELD_OUT:,} of the training images, on which learning rates were chosen.",
        f"The highway net is narrower than that of `cifar10_modern`: its blocks have {WIDTH} channels in place of 48, "
        "and the later stages fewer in proportion, so that a run takes minutes on two cores. No net has channels in "
        "multiples of 16, with which the steps of one net alone would be a quarter faster on CPUs.",
        f"Each net has a learning rate of its own, chosen in runs of {EPOCHS} epochs with seed 0. All other settings, "
        "and the depth, are those of the highway net.",
        "The nets without gates are wider in all layers by one factor, which gives them as many parameters as the "
        "highway net and 11% more multiplications for each image.",
    ),
    tables=make_tables,
    draw=draw_figures,
    short=Study(
        name="conv-gate",
        title=TITLE,
        source=SOURCE,
        asks=QUESTION,
        arms=tuning.ARMS,
        seeds=1,
        differs=(
            "The choice rests on held-out images.",
            "The runs at the chosen learning rates are those of the full study with seed 0.",
        ),
        tables=tuning.make_tables,
        draw=tuning.draw_figures,
        label=tuning.LABEL,
        tested=False,
    ),
)
