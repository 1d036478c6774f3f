"""Run directories as a kill leaves them: copies made while a run trains."""

import shutil
from contextlib import contextmanager

import pytest

from pipelines.training import checkpoint


@contextmanager
def copied(run, to, moments):
    """Copies a run directory at moments of its training.

    Args:
        run: the run directory.
        to: the folder of the copies; `at` names them.
        moments: pairs of a step and whether the copy is made before the state of that step is saved, or after.
    """
    save = checkpoint.save

    def copying(folder, model, progress, belongs_to):
        if (progress.step, True) in moments:
            shutil.copytree(run, at(to, progress.step, before=True))
        save(folder, model, progress, belongs_to)
        if (progress.step, False) in moments:
            shutil.copytree(run, at(to, progress.step))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", copying)
        yield


def at(to, step, before=False):
    """Returns the folder of the copy made at a moment."""
    return to / f"{'before' if before else 'after'}-{step}"
