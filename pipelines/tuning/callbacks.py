"""What is told of a trial while it trains, and what ends it before its last epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import keras

from pipelines.core.run import open_run

LEAST = {"float32": 1.2e-38, "mixed_bfloat16": 1.2e-38, "mixed_float16": 6e-8}
"""Slope T * (1 - T) of a gate below which its gradient is 0 in each precision, on processors that skip denormals."""


class HopelessError(Exception):
    """A trial need not go on."""


class RoundError(Exception):
    """A trial has reached the end of its round."""


class StopOnDeadGates(keras.callbacks.Callback):
    """Raises `HopelessError` once the gates of all layers are so far shut or open that none gets a gradient any more.

    Args:
        path: the run directory, for its precision and the gates before training.
    """

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path

    def on_train_begin(self, _logs: Any = None) -> None:
        """Keras's hook."""
        record = open_run(self.path).record
        self.least = LEAST[record.precision.policy]
        self._check(record.gates, "before training")

    def on_epoch_end(self, epoch: int, logs: Mapping[str, Any] | None = None) -> None:
        """Keras's hook."""
        gates = {name: float(value) for name, value in (logs or {}).items() if name.startswith("gate/")}
        self._check(gates, f"after epoch {epoch + 1}")

    def _check(self, gates: Mapping[str, float], when: str) -> None:
        if gates and all(mean * (1 - mean) < self.least for mean in gates.values()):
            state = "shut" if min(gates.values()) < 0.5 else "open"
            raise HopelessError(f"dead gates: those of all {len(gates)} layers are {state} {when}")


class StopAfter(keras.callbacks.Callback):
    """Raises `RoundError` after an epoch that is not the last.

    Args:
        epochs: of the round.
    """

    def __init__(self, epochs: int) -> None:
        super().__init__()
        self.epochs = epochs

    def on_epoch_end(self, epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        if epoch + 1 >= self.epochs:
            raise RoundError
