"""How long a search still takes, from what its trials have taken."""

from collections.abc import Sequence
from statistics import linear_regression

from pipelines.tuning.plan import SearchPlan
from pipelines.tuning.state import SearchState, Trial


def time_left(plan: SearchPlan, state: SearchState, workers: int, now: float) -> float | None:
    """About how many seconds a search will take from now on; None while nothing is known.

    Args:
        plan: how many trials there are, and their epochs.
        state: what those that are done took.
        workers: at least so many run at the same time.
        now: seconds since 1970.
    """
    over = [trial for trial in state.trials if trial.over]
    if not over:
        return None
    start, epoch = pace([_work(plan, trial) for trial in over], [trial.seconds for trial in over])
    running = [trial for trial in state.trials if trial.status == "running"]
    done = sum(start + epoch * _work(plan, trial) for trial in over)
    done += sum(min(start + epoch * _work(plan, trial), trial.seconds + now - trial.since) for trial in running)
    whole = sum(start + epoch * epochs for epochs in plan.work)
    return max(0.0, whole - done) / max(1, workers, len(running))


def pace(epochs: Sequence[int], seconds: Sequence[float]) -> tuple[float, float]:
    """What trials take: the seconds to start one, and those of an epoch.

    Args:
        epochs: of each trial.
        seconds: that it took.

    Example:
        pace([1, 1, 3], [6.0, 6.0, 8.0])  # (5.0, 1.0)
    """
    if len(set(epochs)) > 1:
        epoch, start = linear_regression(epochs, seconds)
        if epoch >= 0 and start >= 0:
            return start, epoch
    return 0.0, linear_regression([*epochs, 0], [*seconds, 0], proportional=True).slope


def _work(plan: SearchPlan, trial: Trial) -> int:
    return (trial.epochs or plan.config.epochs) - trial.before
