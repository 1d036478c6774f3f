"""Runs with probes, without any training."""

from pipelines.studies.framework.results import Results
from pipelines.training import metrics_file
from pipelines.training.probe import PROBE_FILE
from tests.unit.pipelines.studies.fake import result


def with_probe(made, rows):
    """Returns a result with the rows of its probe."""
    made.run.path.mkdir(parents=True)
    for row in rows:
        metrics_file.append(made.run.path / PROBE_FILE, row)
    return made


def probed_results(study, path, accuracy, rows, seeds=2, **more):
    """Returns results of a study, with accuracy and rows as functions of the arm and the seed."""
    return Results(
        with_probe(result(name, arm.config, seed, accuracy(name), path, **more), rows(name, seed))
        for name, arm in study.arms.items()
        for seed in range(seeds)
    )
