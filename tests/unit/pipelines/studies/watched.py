"""Runs whose nets were watched, without any run."""

from pipelines.studies.framework.results import Results
from pipelines.training import table
from pipelines.training.probe import WATCHED
from tests.unit.pipelines.studies.fake import result


def watched(made, rows):
    """A result with the rows of its table of what was watched."""
    made.run.path.mkdir(parents=True)
    for row in rows:
        table.append(made.run.path / WATCHED, row)
    return made


def watched_results(study, path, accuracy, rows, seeds=2, **more):
    """Results of a study, with accuracy and rows as functions of the arm and the seed."""
    return Results(
        watched(result(name, arm.config, seed, accuracy(name), path, **more), rows(name, seed))
        for name, arm in study.arms.items()
        for seed in range(seeds)
    )
