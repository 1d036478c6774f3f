"""Trials of versions in child processes, before this process loads them: their graphs may crash, or never end."""

import signal
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from serving import checks
from serving.engine.batching import Cost, measure_cost
from serving.engine.processes import ChildProcesses, EndedError, TimeLimitError
from serving.errors import LoadingError, SmokeTestError, TrialTimeoutError
from serving.manifest import Manifest
from serving.model import PART, Model, open_version
from serving.package import again

T = TypeVar("T")
# Seconds of a core that a trial may take while all other versions wait; most take one. Not of the clock: on a busy
# machine, every version would take long.
PATIENCE = 2.0


@dataclass
class _Slow:
    """A version whose trial took longer than the others should wait."""

    content: Manifest
    trial: Future[Cost] | None = None


class VersionTrials:
    """Trials of versions, one at a time, and another one at a time in the background for those that take long.

    A trial that takes long is stopped, and starts again in the background, where it has the whole time limit. Other
    versions wait there for their turn, so at most two are opened at the same time.

    Args:
        children: the child processes, with the time limit of a trial.
        patience: seconds of a core that a trial may take before it goes on in the background; None waits for its end.

    Example:
        trials = VersionTrials(ChildProcesses(seconds=60.0), patience=2.0)
        cost = trials.run(folder, manifest.read(folder))
        trials.close()
    """

    def __init__(self, children: ChildProcesses, patience: float | None = None) -> None:
        self._children, self._patience = children, patience
        self._slow: dict[Path, _Slow] = {}
        self._background = ThreadPoolExecutor(1, thread_name_prefix="trial")

    def check_ended(self, folder: Path, content: Manifest) -> None:
        """Checks that no trial of a version is in the background.

        Args:
            folder: the version.
            content: its manifest.

        Raises:
            LoadingError: there is one.
        """
        slow = self._slow.get(folder)
        if slow and slow.content == content and slow.trial and not slow.trial.done():
            raise _still_tried(folder)

    def run(self, folder: Path, content: Manifest, trusted: Sequence[bytes] = ()) -> Cost:
        """Tries a version, or takes the outcome of its trial in the background.

        Args:
            folder: the version.
            content: its manifest.
            trusted: public keys, one of which must have signed the version; without any, it may be unsigned.

        Returns:
            The cost of its predictions.

        Raises:
            LoadingError: the trial goes on in the background; call it again for the outcome.
            TrialTimeoutError: the trial took too long.
            SmokeTestError: the trial crashed or failed.
            ModelError: the version is refused.
        """
        slow = self._slow.get(folder)
        if slow is None or slow.content != content:
            if slow and slow.trial:
                slow.trial.cancel()
            try:
                return self._try(folder, trusted, self._patience)
            except _TakesLongError:
                pass
            # Without those that have been removed meanwhile.
            self._slow = {one: kept for one, kept in self._slow.items() if one.exists()}
            slow = self._slow[folder] = _Slow(content)
        elif slow.trial:
            # If it failed, the next one starts in the background.
            ended, slow.trial = slow.trial, None
            return ended.result()
        slow.trial = self._background.submit(self._try, folder, trusted)
        raise _still_tried(folder)

    def close(self) -> None:
        """Kills the child processes; trials in progress fail, and there are no further ones."""
        self._background.shutdown(wait=False, cancel_futures=True)
        self._children.close()

    def _try(self, folder: Path, trusted: Sequence[bytes], seconds: float | None = None) -> Cost:
        try:
            return self._children.call(limited, seconds, smoke_test_version, folder, trusted)
        except TimeLimitError as error:
            raise TrialTimeoutError(
                f"opening {folder} and a first prediction took more than {error.seconds:g} s. {again(folder)}. In case "
                "the machine was busy, it is tried again from time to time."
            ) from None
        except EndedError as error:
            if error.status == -signal.SIGPROF:
                raise _TakesLongError from None
            raise SmokeTestError(
                f"opening {folder} and a first prediction crashed the process that tried it ({_ended(error.status)}). "
                f"{again(folder)}."
            ) from None


class _TakesLongError(Exception):
    """A trial took longer than the other versions should wait."""


def limited(seconds: float | None, function: Callable[..., T], *arguments: object) -> T:
    """Calls a function, and ends this process if it takes too many seconds of a core; None sets no limit."""
    if seconds is not None:
        # The signal ends the process, whatever code is running; nothing handles it.
        signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        return function(*arguments)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _ended(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit status {status}"


def _still_tried(folder: Path) -> LoadingError:
    return LoadingError(f"{folder} is still being tried. Try again a little later.")


def smoke_test_version(folder: Path, trusted: Sequence[bytes]) -> Cost:
    """Opens a version, predicts with it, and measures the cost; raises an error if any of it fails."""
    model = open_version(folder, trusted=trusted)
    checks.smoke_test(model)
    with checks.refusing(folder):
        return cost(model)


def cost(model: Model) -> Cost:
    """Measures the cost of a version's predictions, with as many images or rows as it computes at a time."""
    content = model.manifest.input
    return measure_cost(model.predict, np.zeros((PART, *content.shape[1:]), content.dtype))
