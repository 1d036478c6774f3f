"""Callbacks for training highway networks."""

from typing import Any

import keras

from highway_keras.analysis.gate_values import MeanModel


class MeanGates(keras.callbacks.Callback):
    """Adds the mean transform gate of each highway layer, on a fixed batch, to the logs of each epoch.

    The keys are `gate/<layer name>`. Callbacks that come after it in the list, such as `CSVLogger` and `TensorBoard`,
    write them; so does the history that `fit` returns. A model without highway layers gets none. Steps that a mask
    leaves out do not count, as in `highway_keras.mean_gates`.

    Args:
        x: examples to read the gates on, as the model takes them; a few hundred do.
        batch_size: examples in one step.

    Example:
        model.fit(x, y, callbacks=[highway_keras.callbacks.MeanGates(x[:256]), keras.callbacks.CSVLogger("log.csv")])
    """

    def __init__(self, x: Any, batch_size: int | None = 128) -> None:
        super().__init__()
        self.x = x
        self.batch_size = batch_size
        self._reader: MeanModel | None = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        """Makes the model that reads the gates: once, so that its program is compiled once."""
        del logs
        if self._reader is None or self._reader.model is not self.model:
            self._reader = MeanModel(self.model)

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Reads the gates with the weights of this moment."""
        del epoch
        if logs is None or self._reader is None:
            return
        for name, mean in self._reader.means(self.x, self.batch_size).items():
            logs[f"gate/{name}"] = mean
