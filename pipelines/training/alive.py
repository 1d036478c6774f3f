"""What a training says of itself to whoever waits for it."""

from collections.abc import Callable
from typing import Any

import keras


class Alive(keras.callbacks.Callback):
    """Says so whenever something has ended.

    Args:
        alive: what to call.
    """

    def __init__(self, alive: Callable[[], None]) -> None:
        super().__init__()
        self.alive = alive

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.alive()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.alive()

    def on_epoch_end(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.alive()
