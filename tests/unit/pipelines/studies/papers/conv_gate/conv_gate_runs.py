"""Runs of the study `conv-gate`, as they would be at their end."""

from dataclasses import replace

from pipelines.studies.framework.results import Results
from tests.unit.pipelines.studies.fake import RECORD, result


def made(study, path, accuracy, *, arms=None, seeds=2):
    """Returns results with `accuracy(arm)` on test and held-out images."""
    runs = [
        result(name, arm.config, seed, accuracy(name), path, losses=(1.0, 0.6, 0.5))
        for name, arm in study.arms.items()
        if arms is None or name in arms
        for seed in range(seeds)
    ]
    return Results(replace(run, rows=tuple(_timed(run))) for run in runs)


def _timed(run):
    """Yields the rows of a run whose first epoch takes long."""
    for epoch, row in enumerate(run.rows):
        share = row["accuracy"] - 0.1 * (len(run.rows) - 1 - epoch)
        step = (epoch + 1) * RECORD.steps_per_epoch
        yield {**row, "val_accuracy": share, "seconds": 30.0 + 2 * epoch, "step": float(step)}
