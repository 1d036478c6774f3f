"""Runs that another study has made already: a net that several studies ask for is trained once."""

import os
import shutil
from pathlib import Path

from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.files import flush
from pipelines.core.run import MEASURED, Weights, open_run
from pipelines.studies.run.plan import FILE
from pipelines.training.evaluation import of_run
from pipelines.training.probe import WATCHED
from pipelines.training.processes.train import TrainTask


def find(config: Config, weights: Weights, backend: str, folder: Path) -> Path | None:
    """A run of another study, in a folder beside this one's, that has trained and evaluated the same.

    Args:
        config: of the run that is asked for; all of it must be the same, the seed too.
        weights: which are evaluated.
        backend: of Keras.
        folder: of the study that asks.

    Returns:
        The run directory; None if there is none.
    """
    for study in sorted(folder.resolve().parent.glob(f"*/{FILE}")):
        if study.parent == folder.resolve():
            continue
        for path in sorted(study.parent.glob(f"runs/*-seed-{config.seed}")):
            if _is(path, config, weights, backend):
                return path
    return None


def _is(path: Path, config: Config, weights: Weights, backend: str) -> bool:
    try:
        run = open_run(path)
        if (run.config, run.record.backend) != (config, backend):
            return False
        found = of_run(run)
        return TrainTask(folder=path, data_dir=None, config=config, evaluate=True).done and (
            found is None or found.weights == weights
        )
    except (UserError, OSError):
        return False  # Of another version, or just being removed.


def take(path: Path, to: Path) -> None:
    """Copies a run directory, complete or not at all; what its study measured and watched stays behind.

    Args:
        path: from `find`.
        to: the run directory to make.
    """
    # As a name that `plan.clean` removes if this process is killed.
    aside = to.parent / f".{to.name}-{os.getpid()}"
    try:
        shutil.copytree(path, aside, ignore=shutil.ignore_patterns(MEASURED, WATCHED, ".*"))
        for copied in (*aside.rglob("*"), aside):
            flush(copied)
        aside.rename(to)
        flush(to.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
