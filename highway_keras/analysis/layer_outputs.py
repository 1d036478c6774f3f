"""What each highway layer of a model gives, read in one forward pass."""

from typing import Any

import keras
import numpy as np

from highway_keras.analysis.gate_values import GateModel
from highway_keras.layers.recording import recording


class OutputModel(GateModel):
    """A model whose outputs are those of every highway layer of another model, in inference; see `GateModel`."""

    def call(self, inputs: Any) -> dict[str, Any]:
        """Runs the model in inference; layer name to y, `[batch, ...]`, of a stack with an axis for its layers."""
        with recording(outputs=True) as recorded:
            self.model(inputs, training=False)
        self.layer_names, self.depths = tuple(recorded), recorded.depths
        return dict(recorded.outputs or {})


def layer_outputs(model: keras.Model, x: Any, batch_size: int | None = 128) -> dict[str, np.ndarray]:
    """The output y of every highway layer of a model, for each example.

    Args:
        model: any built Keras model.
        x: what `model.predict` would take; all outputs of all examples are kept, so ask for few.
        batch_size: examples in one step; None where `x` comes in batches already.

    Returns:
        Layer name to y, `[examples, ...]` of the shape of the layer's output, in the order and by the names of `gates`.
        Those of a stack are float32 under a mixed policy, as it passes them on.

    Example:
        for name, y in layer_outputs(model, images[:1]).items():
            print(name, y[0])  # one value a unit

    Reference:
        arXiv 1507.06228, section 4 and Figure 2, last column.
    """
    return OutputModel(model).read(x, batch_size)
