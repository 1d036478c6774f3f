"""Measures a net on its way through training, and changes no bit of it.

A run that is killed and gone on with has the same rows in the end: a row is on disk before the state of its step is
saved, and those after the state that a run goes on from are taken away.
"""

from pathlib import Path
from typing import Any

import keras

from pipelines.training import table
from pipelines.training.checkpoint import Progress
from pipelines.training.probe import Probe


class ProbeCallback(keras.callbacks.Callback):
    """Writes a row for each step that is probed; comes after what counts the steps, and before what saves them.

    Args:
        path: the table.
        net: the net alone, without loss and optimiser: running it does not touch the metrics of an epoch. It shares
            its weights with the model that is trained.
        progress: where the run stands.
        probe: what is measured, and when.
    """

    def __init__(self, path: Path, net: keras.Model, progress: Progress, probe: Probe) -> None:
        super().__init__()
        self.path = path
        self.net = net
        self.progress = progress
        self.probe = probe
        self.before = progress.step

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        if not self.progress.step and 0 in self.probe.steps:
            self._measure()

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        before, self.before = self.before, self.progress.step
        if any(before < step <= self.progress.step for step in self.probe.steps):
            self._measure()

    def _measure(self) -> None:
        # On JAX asking for the model brings the weights up to this step.
        _ = self.model
        table.append(self.path, {"step": self.progress.step, **self.probe.measure(self.net)})


def cut(path: Path, step: int) -> None:
    """Takes away the rows that come after a step, and one that was being written when its process was killed.

    Args:
        path: the table, if there is one.
        step: of the state that a run goes on from; at 0 it starts anew, and no row stays.
    """
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
    # All before the last are whole, and of steps that rise.
    rows = [line for line in lines[1:] if line.endswith("\n")]
    table.truncate(path, sum(float(row.partition(",")[0]) <= step for row in rows) if step else 0)
