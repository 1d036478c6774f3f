"""Test accuracy during training, next to the authors' log.

It is measured at fixed steps, and nothing in training depends on it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pipelines.core.plotting import BLUE, GREEN, ORANGE, legend, log_ticks
from pipelines.core.run import Run
from pipelines.studies.framework import tables
from pipelines.studies.framework.accuracy_probe import ACCURACY, on_test
from pipelines.studies.framework.figures import Figures
from pipelines.studies.framework.results import Results
from pipelines.studies.framework.tables import Table
from pipelines.training.probe import Probe

EPOCHS = (1, 2, 5, 10, 20, 50, 100, 200)
"""Epochs after which the net is evaluated, besides the last one and the steps of a log."""
COLOURS = (BLUE, ORANGE, GREEN)


@dataclass(frozen=True)
class Log:
    """The recorded part of the authors' log of one run.

    Args:
        name: name in tables and legends.
        accuracies: test accuracy, a share, by step.
    """

    name: str
    accuracies: Mapping[int, float]


def probe(run: Run, data_dir: Path | None, steps: Sequence[int] = ()) -> Probe:
    """Measures accuracy and loss on the test images after `EPOCHS`, `steps` and the last step.

    Args:
        run: the run.
        data_dir: folder of prepared data; None for the TFDS default.
        steps: steps of the authors' log.

    Returns:
        The probe of `on_test`, at all of these steps that the run reaches.
    """
    each, epochs = run.record.steps_per_epoch, run.config.epochs
    asked = {epochs * each, *(epoch * each for epoch in EPOCHS), *steps}
    return on_test(run, data_dir, {step for step in asked if step <= epochs * each})


def table(results: Results, names: Mapping[str, str], log: Log) -> Table:
    """Tabulates accuracies at the steps of the authors' log and at the end of each run.

    Args:
        results: results of all runs.
        names: names of the arms in tables and legends.
        log: log of the authors.
    """
    known = log.accuracies
    found = {arm: accuracies(results, arm) for arm in names}
    ends = {max(ours) for ours in found.values() if ours}
    rows = tuple(
        (
            tables.number(step),
            *(_cell(results, arm, ours, step) for arm, ours in found.items()),
            f"{100 * known[step]:.2f}" if step in known else tables.MISSING,
        )
        for step in sorted({*known, *ends})
    )
    return Table(
        "Accuracy on test images at the waypoints of the authors' log, in percent",
        ("steps", *names.values(), log.name),
        rows,
        f"{tables.score_format(rows)}; the log is one run of theirs",
    )


def _cell(results: Results, arm: str, ours: Mapping[int, list[float]], step: int) -> str:
    known = step in ours or results.lost(arm)
    return tables.measured(ours.get(step, []), len(results.of(arm)) if known else 0)


def accuracies(results: Results, arm: str) -> dict[int, list[float]]:
    """Test accuracies of an arm's runs by step; empty if every run diverged."""
    if not results.accuracies(arm):
        return {}
    probe = results.probed(arm)
    return {int(step): list(runs) for step, runs in zip(probe["step"], probe[ACCURACY].T, strict=True)}


def draw(results: Results, figures: Figures, names: Mapping[str, str], log: Log | None) -> None:
    """Draws waypoints.png: the error on test images over steps, in each run and in the authors' log.

    Args:
        results: results of all runs.
        figures: receives the figure.
        names: names of the arms in tables and legends.
        log: the authors' log; None if they left none for these nets.
    """
    found = {arm: accuracies(results, arm) for arm in names}
    title = "Error on test images during training" + (", and the authors' log" if log else "")
    with figures.figure("waypoints", (8.2, 4.8), title) as figure:
        axes = figure.subplots()
        for colour, (arm, ours) in zip(COLOURS, found.items(), strict=False):
            if not ours:
                continue
            for number, run in enumerate(zip(*ours.values(), strict=True)):
                errors = [100 * (1 - share) for share in run]
                label = None if number else f"{names[arm]}, each run" if results.several else names[arm]
                axes.plot(list(ours), errors, color=colour, marker="o", ms=4, lw=1, alpha=0.7, label=label)
        if log:
            errors = [100 * (1 - share) for share in log.accuracies.values()]
            axes.plot(list(log.accuracies), errors, "x", color="black", ms=8, mew=1.8, label=log.name)
        # Step counts are too wide for more labels.
        log_ticks(axes.xaxis, lambda value, _: tables.number(round(value)), fine=30)
        log_ticks(axes.yaxis, lambda value, _: f"{value:g}%", fine=math.inf)
        axes.set_xlabel("steps")
        axes.set_ylabel("error on test images")
        legend(figure)
