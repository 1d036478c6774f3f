"""Callbacks for training highway networks."""

from typing import Any

import keras

from highway_keras.analysis.gate_values import MeanModel


class MeanGates(keras.callbacks.Callback):
    """Logs the mean transform gate of each highway layer on fixed examples at the end of each epoch.

    The keys are `gate/<layer name>`. Callbacks later in the list, such as `CSVLogger` and `TensorBoard`, write them,
    and so does the history returned by `fit`. A model without highway layers logs nothing. Masked steps do not count,
    as in `highway_keras.mean_gates`.

    Args:
        x: inputs of the model; a few hundred examples suffice.
        batch_size: examples per step.

    Example:
        model.fit(x, y, callbacks=[highway_keras.callbacks.MeanGates(x[:256]), keras.callbacks.CSVLogger("log.csv")])
    """

    def __init__(self, x: Any, batch_size: int | None = 128) -> None:
        super().__init__()
        self.x = x
        self.batch_size = batch_size
        self._reader: MeanModel | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Creates the model that reads the gates, unless it exists, so that it compiles only once."""
        del logs
        if self._reader is None or self._reader.model is not self.model:
            self._reader = MeanModel(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Adds the mean gates to the logs."""
        del epoch
        if logs is None or self._reader is None:
            return
        for name, mean in self._reader.means(self.x, self.batch_size).items():
            logs[f"gate/{name}"] = mean
