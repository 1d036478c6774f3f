"""The time left of many runs, of which some are trained at the same time."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Rest:
    """What is left of a run.

    Args:
        name: of the run.
        work: in any unit that is the same for all runs.
        pace: seconds that it took for each of them so far; None if it did nothing yet.
    """

    name: str
    work: float
    pace: float | None = None


class TimeLeft:
    """Tells the time left from how fast the runs went so far: each by its own pace, or by that of all until it has one.

    Args:
        rests: of the runs, in the order in which they are trained.
        workers: runs at the same time; each takes the next one as soon as it is done with one.
        now: the time, in seconds.

    Example:
        left = TimeLeft([Rest("a", 10.0), Rest("b", 10.0)], workers=1, now=0.0)
        left.seconds([Rest("a", 5.0, pace=12.0), Rest("b", 10.0)], now=60.0)  # 180.0
    """

    def __init__(self, rests: Sequence[Rest], workers: int, now: float) -> None:
        self._workers = workers
        self._rests = {rest.name: rest.work for rest in rests}
        self._moved: dict[str, float] = {}
        self._looked = now
        self._busy = self._done = self._pace = 0.0
        self._start(rests, now)

    def seconds(self, rests: Sequence[Rest], now: float) -> float | None:
        """The seconds left, of the worker that ends last.

        Args:
            rests: of the runs that are not over, in the same order.
            now: the time, in seconds.

        Returns:
            None as long as no run was seen to move and one of them has no pace.
        """
        self._busy += (now - self._looked) * min(self._workers, len(self._rests))
        self._looked = now
        if self._move(rests, now):
            # With all that is not training: processes start, and test what they trained.
            self._pace = self._busy / self._done
        self._start(rests, now)
        if not self._done and any(rest.pace is None for rest in rests):
            return None
        ahead = [0.0] * self._workers
        for rest in rests:
            seconds = rest.work * (rest.pace or self._pace)
            # A run moves at the end of an epoch, which may take many minutes.
            since = now - self._moved.get(rest.name, now)
            ahead[ahead.index(min(ahead))] += max(0.0, seconds - since)
        return max(ahead, default=0.0)

    def _move(self, rests: Sequence[Rest], now: float) -> bool:
        """Notes which runs did something since the last look; tells whether one did."""
        left = {rest.name: rest.work for rest in rests}
        moved = [name for name, work in self._rests.items() if left.get(name, 0.0) < work]
        self._done += sum(self._rests[name] - left.get(name, 0.0) for name in moved)
        self._moved |= dict.fromkeys(moved, now)
        self._rests = left
        return bool(moved)

    def _start(self, rests: Sequence[Rest], now: float) -> None:
        """The first runs are those that are trained."""
        for rest in rests[: self._workers]:
            self._moved.setdefault(rest.name, now)
