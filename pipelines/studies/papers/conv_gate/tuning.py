"""The short schedule of `conv-gate`: the learning rate of each net, chosen on held-out images."""

import statistics

from pipelines.core.plotting import legend, listed_ticks
from pipelines.studies.framework import tables
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.papers.conv_gate.nets import HELD_OUT, NETS, arm

RATES = (0.2, 0.4, 0.8)
SCORE = "val_accuracy"
LABEL = "short schedule: learning rates, one seed"


def tried(net: str, rate: float) -> str:
    """Returns the name of the arm that tries a learning rate."""
    return f"{net}-{rate:g}"


ARMS: dict[str, Arm] = {tried(net, rate): arm(tuned, rate) for net, tuned in NETS.items() for rate in RATES}


def scores(results: Results, net: str) -> dict[float, list[float]]:
    """Returns the held-out accuracy after the last epoch of each run that did not diverge, by learning rate."""
    return {rate: [float(run[-1]) for run in results.curves(tried(net, rate), SCORE)] for rate in RATES}


def best_rate(results: Results, net: str) -> float | None:
    """Returns the learning rate with the highest mean held-out accuracy; None if no run of the net ended well."""
    means = {rate: statistics.mean(found) for rate, found in scores(results, net).items() if found}
    return max(means, key=means.__getitem__) if means else None


def make_tables(results: Results) -> list[Table]:
    """Tabulates the held-out accuracy of each learning rate."""
    rows = []
    for net in NETS:
        cells = [
            tables.measured(found, len(results.of(tried(net, rate)))) for rate, found in scores(results, net).items()
        ]
        best = best_rate(results, net)
        rows.append((net, *cells, MISSING if best is None else f"{best:g}"))
    head = ("net", *(f"{rate:g}" for rate in RATES), "best")
    note = f"{tables.score_format(rows)}; after the last epoch"
    return [Table(f"Accuracy on {HELD_OUT:,} held-out images by learning rate, in percent", head, tuple(rows), note)]


def draw_figures(results: Results, figures: Figures) -> None:
    """Draws the held-out accuracy over the learning rate, a line for each net."""
    with figures.figure("rates", (8.2, 4.4), "Accuracy on held-out images by learning rate") as figure:
        axes = figure.subplots()
        for net, tuned in NETS.items():
            means = {rate: 100 * statistics.mean(found) for rate, found in scores(results, net).items() if found}
            if means:
                axes.plot(list(means), list(means.values()), "o-", color=tuned.colour, label=net)
        listed_ticks(axes.xaxis, RATES)
        axes.set_xlim(RATES[0] / 1.2, RATES[-1] * 1.2)
        axes.set_xlabel("maximum of the learning rate")
        axes.set_ylabel("accuracy on held-out images, %")
        legend(figure)
