"""When a run saves its state: every so many steps, or as often as a small share of its time allows."""

import time
from collections.abc import Callable
from typing import Literal

Interval = int | Literal["auto"]
# Of the time that a run has taken so far. What follows a save is slower for a moment, which costs several times as much
# as the save: all in all it stays below 2 % (docs/training.md).
SHARE = 0.002


class Saves:
    """Tells when the state is to be saved.

    With "auto" the first execution is followed by a save, so that a folder that cannot be written to is found then;
    every other save is put off until all of them, it included, take no more than `SHARE` of the time that has passed.

    Args:
        interval: steps between two saves, or "auto". An execution of several steps is not divided: the save comes after
            the one that reaches a multiple of `interval`.
        step: steps that are done at the start.
        clock: seconds.

    Example:
        saves = Saves("auto", step=0)
        if saves.due(step):
            checkpoint.save(...)
            saves.done(step, seconds)
    """

    def __init__(self, interval: Interval, step: int, clock: Callable[[], float] = time.perf_counter) -> None:
        self.interval = interval
        self.step = step
        self.clock = clock
        self.since = clock()
        self.spent = 0.0
        self.last = 0.0

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be saved."""
        if self.interval == "auto":
            return self.spent + self.last <= SHARE * (self.clock() - self.since)
        return step // self.interval > self.step // self.interval

    def done(self, step: int, seconds: float) -> None:
        """Takes note that the state after `step` steps was saved, which took `seconds`."""
        self.step = step
        self.last = seconds
        self.spent += seconds
