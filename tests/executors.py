"""Executors without processes: one runs tasks in this process, in any order; others name a node, or lose the tasks."""

import pickle
import random
from dataclasses import replace

from pipelines.core.errors import UserError
from pipelines.core.executor import attempt


class Shuffled:
    """Runs submitted tasks in a random order, and may be interrupted.

    Args:
        seed: decides the order.
        capacity: see `Executor`.
        most: number of tasks after which it is interrupted; None for never.
    """

    def __init__(self, seed=0, capacity=3, most=None):
        self._chance = random.Random(seed)
        self._capacity = capacity
        self._left = most
        self._waiting = []
        self.keys = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._waiting.clear()

    def capacity(self):
        return self._capacity

    def submit(self, key, task, function):
        self.keys.append(key)
        self._waiting.append((key, pickle.dumps((task, function))))

    def finished(self, timeout):
        if not self._waiting:
            return []
        if self._left == 0:
            raise KeyboardInterrupt
        if self._left is not None:
            self._left -= 1
        key, content = self._waiting.pop(self._chance.randrange(len(self._waiting)))
        return [attempt(key, *pickle.loads(content))]


class OnNode(Shuffled):
    """Says of every task that a node of this name performed it."""

    name = "node3"

    def finished(self, timeout):
        return [replace(outcome, node=self.name) for outcome in super().finished(timeout)]


class Deserted(Shuffled):
    """Loses all machines while the first tasks run."""

    lost = False

    def capacity(self):
        if self.lost:
            raise UserError("no machine is left")
        return super().capacity()

    def finished(self, timeout):
        assert not self.lost, "waits for ever"
        self.lost = True
        return []
