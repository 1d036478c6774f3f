"""A heartbeat of training, for whoever has to know that it does not hang."""

from collections.abc import Callable
from typing import Any

import keras


class Heartbeat(keras.callbacks.Callback):
    """Beats whenever an execution of training or validation, or an epoch, has ended.

    Args:
        heartbeat: called at each beat.
    """

    def __init__(self, heartbeat: Callable[[], None]) -> None:
        super().__init__()
        self.heartbeat = heartbeat

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.heartbeat()

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        """Keras's hook."""
        del batch, logs
        self.heartbeat()

    def on_epoch_end(self, _epoch: int, _logs: Any = None) -> None:
        """Keras's hook."""
        self.heartbeat()
