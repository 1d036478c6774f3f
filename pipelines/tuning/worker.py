"""A worker: takes trials from the chief and trains them, until there are none."""

import gc
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import keras_tuner
from keras_tuner.engine.trial import Trial
from keras_tuner.errors import FailedTrialError, FatalError

from pipelines.core.errors import StoppedError, UserError, disk_is_full
from pipelines.training.processes.task import AGAIN
from pipelines.training.processes.watchdog import watchdog
from pipelines.tuning import oracles, trials
from pipelines.tuning.callbacks import HopelessError
from pipelines.tuning.chief_client import Link
from pipelines.tuning.fault_tolerance import REASON, Enduring
from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.state import Objective

TRIALS = 16
"""Trials of one process: TensorFlow keeps about 18 MB of every small net that it compiled, whatever is cleared."""


class Worker(keras_tuner.Tuner):
    """KerasTuner's tuner for trials that are runs of ours; in the chief it is only the server's shell.

    Args:
        plan: of the search.
        folder: of the search.
        oracle: from `oracles.make`.
        data_dir: where prepared data lies; None for the default of TFDS.
    """

    def __init__(self, plan: SearchPlan, folder: Path, oracle: Enduring, data_dir: Path | None) -> None:
        super().__init__(oracle, directory=str(folder), project_name="kerastuner")
        self.plan = plan
        self.folder = folder
        self.data_dir = data_dir
        self.done = 0

    def save(self) -> None:
        """KerasTuner's method; there is nothing that only a worker knows."""

    def pre_create_trial(self) -> None:
        """KerasTuner's hook: looks whose chief it is, and after its share makes place for a fresh process."""
        if self.oracle.get_space().values.get(oracles.FINGERPRINT) != self.plan.fingerprint:
            raise FatalError(
                "the chief at this address searches something else. Start chief and workers with the same command."
            )
        if self.done == TRIALS:
            sys.exit(AGAIN)
        self.done += 1

    def run_trial(self, trial: Trial, *_: Any, **__: Any) -> dict[str, float]:
        """KerasTuner's method: trains a trial.

        Args:
            trial: with the values that were drawn.

        Returns:
            The objective.

        Raises:
            FailedTrialError: the trial has no result, and no other worker would get one.
            FatalError: the disk is full.
        """
        try:
            with self.oracle.heartbeat(trial.trial_id, _leave), watchdog() as heartbeat:
                return self._trained(trial, heartbeat)
        except FailedTrialError as error:
            trial.hyperparameters.values[REASON] = str(error)
            raise
        finally:
            keras.utils.clear_session()
            gc.collect()

    def _trained(self, drawn: Trial, heartbeat: Callable[[], None]) -> dict[str, float]:
        values = drawn.hyperparameters.values
        path = self.folder / "trials" / self._root(drawn)
        epochs = values.get("tuner/epochs")
        try:
            config = self.plan.configured(values)
            score = trials.train(config, path, self.data_dir, epochs, self._objective, heartbeat=heartbeat)
        except (HopelessError, UserError) as error:
            raise FailedTrialError(str(error)) from error
        except StoppedError as stopped:
            # Asked to end, with the state saved: the trial goes on elsewhere, and has not failed.
            sys.exit(128 + stopped.number)
        except Exception as error:
            if disk_is_full(error):
                raise FatalError(str(error)) from error
            # A mistake of ours or of a framework: told in full in the log, and one trial's failure.
            traceback.print_exc()
            raise FailedTrialError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
        if not epochs or epochs >= self.plan.config.epochs:
            trials.shed(path)
        return {self._objective.name: score}

    @property
    def _objective(self) -> Objective:
        return Objective(self.oracle.objective.name, self.oracle.objective.direction)

    def _root(self, drawn: Trial) -> str:
        """The first trial of those that Hyperband made of each other: they share a run directory."""
        while earlier := drawn.hyperparameters.values.get("tuner/trial_id"):
            drawn = self.oracle.get_trial(earlier)
        return str(drawn.trial_id)


def work(plan: SearchPlan, folder: Path, data_dir: Path | None) -> None:
    """Works until the search is over.

    Args:
        plan: of the search.
        folder: of the search.
        data_dir: where prepared data lies; None for the default of TFDS.

    Raises:
        UserError: the chief is gone or searches something else, or the data cannot be had.
        SystemExit: with status `AGAIN` after `TRIALS` trials.
    """
    worker = Worker(plan, folder, oracles.make(plan, trials.objective(plan.config, data_dir)), data_dir)
    worker.oracle = Link(worker.oracle)
    try:
        worker.search()
    except FatalError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise UserError(str(error)) from None


def _leave(why: str | UserError) -> None:
    # Whatever the training is doing at this moment may be cut off: that is what runs are made for.
    if isinstance(why, UserError):
        sys.stderr.write(f"highway tune: error: {why}\n")
        sys.stderr.flush()
        os._exit(2)
    os._exit(0 if why == "STOPPED" else AGAIN)
