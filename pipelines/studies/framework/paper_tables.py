"""Studies of the paper's tables: our accuracies next to those that the paper reports or cites."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pipelines.core.config import Recipe
from pipelines.core.plotting import BLUE, GREY
from pipelines.recipes.short import EPOCHS
from pipelines.studies.framework import tables, waypoints
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.study import Arm, Counts, Published, Study
from pipelines.studies.framework.tables import MISSING, Table
from pipelines.studies.framework.waypoints import Log

SEEDS = 5
"""Number of runs behind the paper's means and standard deviations."""
LABEL = f"short schedule: {EPOCHS} epochs in place of the recorded training"
SHORTER = (
    f"No net is trained in full. One cycle of the learning rate in {EPOCHS} epochs replaces the recorded training; "
    "all of its numbers are ours."
)


@dataclass(frozen=True)
class PaperNet:
    """A net in a table of the paper.

    Args:
        name: name of the net.
        published: accuracy, as far as the paper reports it.
        parameters: parameter count as printed in the paper, rounded; None if it prints none.
        arm: arm of the study that trains the net; empty if only the paper trained it.
        recipe: recipe of the arm.
    """

    name: str
    published: Published = field(default_factory=Published)
    parameters: int | None = None
    arm: str = ""
    recipe: Recipe | None = None


def study(
    name: str,
    *,
    title: str,
    source: str,
    asks: str,
    nets: Sequence[PaperNet],
    short: Sequence[PaperNet] = (),
    counts: Counts,
    differs: tuple[str, ...],
    log: Log | None = None,
    label: str = "",
) -> Study:
    """Builds the study of a table of the paper.

    Args:
        name: name on the command line.
        title: title of its page.
        source: paper and table.
        asks: its question, in one line.
        nets: rows of the table.
        short: rows of the short study's table; empty if a CPU can train the nets in full.
        counts: sizes of the data set.
        differs: differences from the source.
        log: the authors' log; None if they left none for these nets.
        label: label of the study if it is itself a short one.
    """
    names = {net.arm: net.name for net in nets if net.recipe}

    def make_tables(results: Results) -> list[Table]:
        return [table(results, nets), *([waypoints.table(results, names, log)] if log else [])]

    def draw_figures(results: Results, figures: Figures) -> None:
        draw(results, figures, nets)
        waypoints.draw(results, figures, names, log)

    common: Any = {"title": title, "source": source, "asks": asks}
    return Study(
        name=name,
        **common,
        arms={
            net.arm: Arm(
                config=net.recipe.config, published=net.published, provenance=net.recipe.provenance, data=counts
            )
            for net in nets
            if net.recipe
        },
        seeds=SEEDS,
        differs=differs,
        tables=make_tables,
        draw=draw_figures,
        probe=partial(waypoints.probe, steps=tuple(log.accuracies) if log else ()),
        short=study(name, **common, nets=short, counts=counts, differs=(SHORTER, *differs), log=log, label=LABEL)
        if short
        else None,
        label=label,
    )


def table(results: Results, nets: Sequence[PaperNet]) -> Table:
    """Tabulates parameters, epochs and accuracy of each net, ours next to the paper's.

    Args:
        results: results of all runs.
        nets: nets in the order of the rows.
    """
    ours = [(results.accuracy(net.arm),) for net in nets]
    return Table(
        "Accuracy on test images, in percent",
        ("net", "parameters", "parameters, paper", "epochs", "accuracy", "accuracy, paper"),
        tuple(_row(results, net) for net in nets),
        f"ours: {tables.score_format(ours)}. The paper's: {tables.spread_over(SEEDS)}; its parameter counts are "
        "rounded",
    )


def _row(results: Results, net: PaperNet) -> tuple[str, ...]:
    runs, known = results.of(net.arm), net.published
    return (
        net.name,
        results.parameters(net.arm),
        MISSING if net.parameters is None else tables.number(net.parameters),
        tables.number(runs[0].run.config.epochs) if runs else MISSING,
        results.accuracy(net.arm),
        tables.spread(known.best, known.mean, known.std, None),
    )


def draw(results: Results, figures: Figures, nets: Sequence[PaperNet]) -> None:
    """Draws accuracies.png: each of our runs next to the paper's results, net by net.

    Args:
        results: results of all runs.
        figures: receives the figure.
        nets: nets in the order of the rows.
    """
    title = "Accuracy on test images, ours and the paper's"
    with figures.figure("accuracies", (9.4, 1.4 + 0.42 * len(nets)), title) as figure:
        axes = figure.subplots()
        lines = {}
        mine = "ours, each run" if results.several else "ours"
        for row, net in enumerate(nets):
            ours = [100 * share for share in results.accuracies(net.arm)]
            if ours:
                (lines[mine],) = axes.plot(ours, [row - 0.12] * len(ours), "o", color=BLUE, alpha=0.6)
            known = net.published
            colour = "black" if net.name.startswith("Highway") else GREY
            if known.best is not None:
                (lines["the paper's best"],) = axes.plot(100 * known.best, row + 0.12, "x", color=colour, mew=1.8)
            if known.mean is not None and known.std is not None:
                lines["its mean and deviation"] = axes.errorbar(
                    100 * known.mean, row + 0.12, xerr=100 * known.std, color=colour, capsize=4, marker="|"
                )
        axes.set_yticks(range(len(nets)), [net.name for net in nets])
        axes.set_ylim(len(nets) - 0.5, -0.5)
        axes.set_xlabel("accuracy on test images, %")
        figure.legend(list(lines.values()), list(lines), loc="outside right center", fontsize=9)
