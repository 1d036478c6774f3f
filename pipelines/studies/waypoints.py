"""The accuracy on the test images on the way through training, beside the waypoints of the authors' log.

It is measured at steps that are fixed before the first, and steers nothing.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from pipelines.figures import BLUE, ORANGE
from pipelines.run import Run
from pipelines.studies import tables
from pipelines.studies.pictures import Pictures
from pipelines.studies.results import Results
from pipelines.studies.tables import Table
from pipelines.studies.tested import ACCURACY, on_test
from pipelines.training.watch import Watch

EPOCHS = (1, 2, 5, 10, 20, 50, 100, 200)
"""After these, and after the last, is measured; what a log records comes to it."""
COLOURS = (BLUE, ORANGE, "#009E73")


def watch(run: Run, data_dir: Path | None, steps: Sequence[int] = ()) -> Watch:
    """Measures accuracy and loss on the test images after `EPOCHS`, `steps` and the last step.

    Args:
        run: the run.
        data_dir: where prepared data lies; None for the default of TFDS.
        steps: of a log.

    Returns:
        What `tested.on_test` gives, after those of the steps that the run reaches.
    """
    each, epochs = run.record.steps_per_epoch, run.config.epochs
    asked = {epochs * each, *(epoch * each for epoch in EPOCHS), *steps}
    return on_test(run, data_dir, {step for step in asked if step <= epochs * each})


def table(results: Results, names: Mapping[str, str], log: Mapping[int, float]) -> Table:
    """Accuracies at the steps of the authors' log, and at the end of each run.

    Args:
        results: of all runs.
        names: what each arm is called.
        log: share of the test images by step.
    """
    found = {arm: accuracies(results, arm) for arm in names}
    ends = {max(ours) for ours in found.values() if ours}
    rows = tuple(
        (
            tables.number(step),
            *(tables.measured(ours.get(step, []), len(ours.get(step, []))) for ours in found.values()),
            f"{100 * log[step]:.2f}" if step in log else tables.MISSING,
        )
        for step in sorted({*log, *ends})
    )
    return Table(
        "Accuracy on test images at the waypoints of the authors' log, in percent",
        ("steps", *names.values(), "the authors' log"),
        rows,
        "best (mean +- standard deviation over seeds, n = runs); the log is one run of theirs",
    )


def accuracies(results: Results, arm: str) -> dict[int, list[float]]:
    """Share of the test images at each step that was measured, of each run of an arm; nothing if every run diverged."""
    if not results.accuracies(arm):
        return {}
    watched = results.watched(arm)
    return {int(step): list(runs) for step, runs in zip(watched["step"], watched[ACCURACY].T, strict=True)}


def draw(results: Results, pictures: Pictures, names: Mapping[str, str], log: Mapping[int, float]) -> None:
    """Draws waypoints.png: the error on test images over steps, of each run, and the authors' log.

    Args:
        results: of all runs.
        pictures: where to.
        names: what each arm is called.
        log: share of the test images by step; none if the authors' log tells nothing of these nets.
    """
    found = {arm: accuracies(results, arm) for arm in names}
    title = "Error on test images on the way" + (", beside the authors' log" if log else "")
    with pictures.figure("waypoints", (8.2, 4.8), title, told(results, names, log)) as figure:
        axes = figure.subplots()
        for colour, (arm, ours) in zip(COLOURS, found.items(), strict=False):
            if not ours:
                continue
            for number, run in enumerate(zip(*ours.values(), strict=True)):
                errors = [100 * (1 - share) for share in run]
                label = None if number else f"{names[arm]}, each run"
                axes.plot(list(ours), errors, color=colour, marker="o", ms=4, lw=1, alpha=0.7, label=label)
        if log:
            errors = [100 * (1 - share) for share in log.values()]
            axes.plot(list(log), errors, "x", color="black", ms=8, mew=1.8, label="the authors' log")
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tables.number(round(value))))
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} %"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("steps")
        axes.set_ylabel("error on test images")
        if axes.lines:
            figure.legend(loc="outside right center", fontsize=9)


def told(results: Results, names: Mapping[str, str], log: Mapping[int, float]) -> str:
    """What the runs show at the steps of the log, and at their end."""
    parts = []
    for arm, name in names.items():
        ours = accuracies(results, arm)
        if not results.of(arm):
            continue
        if not ours:
            parts.append(f"{name}: every run diverged.")
            continue
        at = [
            f"{100 * mean(ours[step]):.2f} % after {tables.number(step)} steps (the log {100 * share:.2f} %)"
            for step, share in log.items()
            if step in ours
        ]
        if (end := max(ours)) not in log:
            at.append(f"{100 * mean(ours[end]):.2f} % at the end, after {tables.number(end)} steps")
        parts.append(f"{name}, mean over runs: {', '.join(at)}.")
    return " ".join(parts)
