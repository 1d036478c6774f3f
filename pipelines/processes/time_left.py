"""The time left of many runs, of which some are trained at the same time."""

from collections.abc import Sequence


class TimeLeft:
    """Tells the time left from how fast the runs went so far.

    Args:
        rests: the work that is left of each run, in any unit.
        workers: runs at the same time; each takes the next one as soon as it is done with one.
        now: the time, in seconds.

    Example:
        left = TimeLeft([10.0, 10.0], workers=1, now=0.0)
        left.seconds([5.0, 10.0], now=60.0)  # 180.0
    """

    def __init__(self, rests: Sequence[float], workers: int, now: float) -> None:
        self._workers = workers
        self._all = sum(rests)
        self._runs = len(rests)
        self._looked = self._moved = now
        self._busy = self._done = self._pace = 0.0

    def seconds(self, rests: Sequence[float], now: float) -> float | None:
        """The seconds left, of the worker that ends last.

        Args:
            rests: the work that is left of each run that is not over.
            now: the time, in seconds.

        Returns:
            None as long as no run was seen to move.
        """
        self._busy += (now - self._looked) * min(self._workers, self._runs)
        self._looked, self._runs = now, len(rests)
        if self._all - sum(rests) > self._done:
            self._done, self._moved = self._all - sum(rests), now
            self._pace = self._busy / self._done
        if not self._done:
            return None
        each = [0.0] * self._workers
        for rest in rests:
            each[each.index(min(each))] += rest
        # A run moves at the end of an epoch, which may take many minutes.
        return max(0.0, max(each) * self._pace - (now - self._moved))
