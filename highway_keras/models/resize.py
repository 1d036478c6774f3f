"""Parameter-free size changes between highway stages (paper, section 2.1)."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from highway_keras.models import checks

Mode = Literal["zero_pad", "subsample"]
MODES = ("plain", "zero_pad", "subsample")


@keras.saving.register_keras_serializable(package="highway_keras")
class Resize(keras.layers.Layer):
    """Resizes the last axis without weights, for a highway layer of another size.

    Stages are usually connected by a plain layer. This is the paper's alternative, which keeps the carry path unbroken.

    Args:
        size: units or channels of the output.
        mode: "zero_pad" appends zeros and can only grow; "subsample" keeps evenly spaced units and can only shrink.

    Input shape:
        Rank 2 or more, `(batch, ..., features)`.

    Output shape:
        Same as the input, with `size` features.

    Raises:
        ValueError: if the mode cannot reach `size` from the input's size.

    Example:
        x = Resize(80, mode="zero_pad")(x)  # (batch, 16, 16, 32) -> (batch, 16, 16, 80)

    Reference:
        Srivastava, Greff, Schmidhuber 2015, arXiv 1507.06228, section 2.1.
    """

    def __init__(self, size: int, mode: Mode = "zero_pad", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        checks.positive("size", size)
        checks.choice("mode", mode, MODES[1:])
        self.size = size
        self.mode = mode

    def call(self, x: Any) -> Any:
        """Pads or sub-samples x."""
        size = x.shape[-1]
        self._check(tuple(x.shape))
        if self.mode == "zero_pad":
            return ops.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, self.size - size)])
        return ops.take(x, np.arange(self.size) * size // self.size, axis=-1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """Returns the input shape with the new size."""
        self._check(tuple(input_shape))
        return (*input_shape[:-1], self.size)

    def get_config(self) -> dict[str, Any]:
        """Returns the arguments in JSON-serializable form."""
        return {**super().get_config(), "size": self.size, "mode": self.mode}

    def _check(self, shape: tuple[int | None, ...]) -> None:
        size = shape[-1]
        target = (*shape[:-1], self.size)
        if size is None:
            raise ValueError(f"The last axis must be defined. Received: input shape {shape}, output shape {target}")
        if (size > self.size) if self.mode == "zero_pad" else (size < self.size):
            verb, other = ("grow", "subsample") if self.mode == "zero_pad" else ("shrink", "zero_pad")
            raise ValueError(
                f"'{self.mode}' can only {verb} the last axis; use '{other}' or a plain layer. "
                f"Received: input shape {shape}, output shape {target}"
            )
