"""The worker: trains trials from the chief until there are none left."""

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
from pipelines.training.processes.task import AGAIN, watchdog
from pipelines.tuning import trials
from pipelines.tuning.distributed import oracles
from pipelines.tuning.distributed.client import ChiefClient
from pipelines.tuning.distributed.fault_tolerance import REASON, FaultTolerant
from pipelines.tuning.search_plan import SearchPlan
from pipelines.tuning.search_state import Objective
from pipelines.tuning.trials import HopelessError

TRIALS = 16
"""Trials per process: TensorFlow leaks memory for every net that it compiles (docs/tuning.md)."""


class Worker(keras_tuner.Tuner):
    """A KerasTuner tuner whose trials are training runs; in the chief it only runs the server.

    Args:
        plan: the plan of the search.
        folder: the folder of the search.
        oracle: the oracle that `oracles.make` returned.
        data_dir: folder of prepared data; None for the TFDS default.
    """

    def __init__(self, plan: SearchPlan, folder: Path, oracle: FaultTolerant, data_dir: Path | None) -> None:
        super().__init__(oracle, directory=str(folder), project_name="kerastuner")
        self.plan = plan
        self.folder = folder
        self.data_dir = data_dir
        self.done = 0

    def save(self) -> None:
        """KerasTuner's method; a worker has no state of its own."""

    def pre_create_trial(self) -> None:
        """KerasTuner's hook: checks that the search is the chief's, and exits after `TRIALS` trials for a restart."""
        if self.oracle.get_space().values.get(oracles.FINGERPRINT) != self.plan.fingerprint:
            raise FatalError(
                "the chief at this address runs another search. Start the chief and the workers with the same command."
            )
        if self.done == TRIALS:
            sys.exit(AGAIN)
        self.done += 1

    def run_trial(self, trial: Trial, *_: Any, **__: Any) -> dict[str, float]:
        """KerasTuner's method: trains a trial.

        Args:
            trial: the trial with its sampled values.

        Returns:
            The objective.

        Raises:
            FailedTrialError: the trial has no result and a retry would not help.
            FatalError: the disk is full.
        """
        try:
            with self.oracle.heartbeat(trial.trial_id, _leave), watchdog() as reset:
                return self._train(trial, reset)
        except FailedTrialError as error:
            trial.hyperparameters.values[REASON] = str(error)
            raise
        finally:
            keras.utils.clear_session()
            gc.collect()

    def _train(self, trial: Trial, reset_watchdog: Callable[[], None]) -> dict[str, float]:
        values = trial.hyperparameters.values
        path = self.folder / "trials" / self._root(trial)
        epochs = values.get("tuner/epochs")
        try:
            config = self.plan.configured(values)
            score = trials.train(config, path, self.data_dir, epochs, self._objective, reset_watchdog=reset_watchdog)
        except (HopelessError, UserError) as error:
            raise FailedTrialError(str(error)) from error
        except StoppedError as stopped:
            # A signal came and the state is saved; another worker resumes the trial.
            sys.exit(128 + stopped.number)
        except Exception as error:
            if disk_is_full(error):
                raise FatalError(str(error)) from error
            # An unexpected error fails only this trial; its traceback goes to the log.
            traceback.print_exc()
            raise FailedTrialError(f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}") from error
        if not epochs or epochs >= self.plan.config.epochs:
            trials.shed(path)
        return {self._objective.name: score}

    @property
    def _objective(self) -> Objective:
        return Objective(self.oracle.objective.name, self.oracle.objective.direction)

    def _root(self, trial: Trial) -> str:
        """The first trial of a Hyperband chain, whose run directory all trials of the chain share."""
        while earlier := trial.hyperparameters.values.get("tuner/trial_id"):
            trial = self.oracle.get_trial(earlier)
        return str(trial.trial_id)


def work(plan: SearchPlan, folder: Path, data_dir: Path | None) -> None:
    """Trains trials until the search is over.

    Args:
        plan: the plan of the search.
        folder: the folder of the search.
        data_dir: folder of prepared data; None for the TFDS default.

    Raises:
        UserError: the chief is gone or runs another search, or the data are not available.
        SystemExit: status `AGAIN` after `TRIALS` trials.
    """
    worker = Worker(plan, folder, oracles.make(plan, trials.objective(plan.config, data_dir)), data_dir)
    worker.oracle = ChiefClient(worker.oracle)
    try:
        worker.search()
    except FatalError as error:
        if error.__cause__ is not None:
            raise error.__cause__ from None
        raise UserError(str(error)) from None


def _leave(why: str | UserError) -> None:
    # Training may be cut off at any moment, because runs can resume.
    if isinstance(why, UserError):
        sys.stderr.write(f"highway tune: error: {why}\n")
        sys.stderr.flush()
        os._exit(2)
    os._exit(0 if why == "STOPPED" else AGAIN)
