"""Size changes between highway stages: x gets the size that the next layers keep (paper, section 2.1)."""

from typing import Any, Literal

import keras
import numpy as np
from keras import ops

from highway_keras.models import checks

Mode = Literal["zero_pad", "subsample"]
MODES = ("plain", "zero_pad", "subsample")


@keras.saving.register_keras_serializable(package="highway_keras")
class Resize(keras.layers.Layer):
    """Gives the last axis another size without weights, so that a highway layer can carry it on.

    The usual way between stages is a plain layer; this is the other one in the paper, which has no weights
    and keeps the path through the carry gates whole.

    Args:
        size: units or channels of the output.
        mode: "zero_pad" appends zeros and only grows; "subsample" keeps evenly spaced units and only shrinks.

    Input shape:
        Any rank from 2, `(batch, ..., features)`.

    Output shape:
        The same with `size` features.

    Raises:
        ValueError: if the mode cannot lead from the input's size to `size`; both shapes are named.

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
        """Pads x with zeros, or picks from it."""
        given = x.shape[-1]
        self._check(tuple(x.shape))
        if self.mode == "zero_pad":
            return ops.pad(x, [(0, 0)] * (len(x.shape) - 1) + [(0, self.size - given)])
        return ops.take(x, np.arange(self.size) * given // self.size, axis=-1)

    def compute_output_shape(self, input_shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
        """The input's shape with the new size; refuses a change that the mode cannot make."""
        self._check(tuple(input_shape))
        return (*input_shape[:-1], self.size)

    def get_config(self) -> dict[str, Any]:
        """The arguments, in a form that can be written as JSON."""
        return {**super().get_config(), "size": self.size, "mode": self.mode}

    def _check(self, shape: tuple[int | None, ...]) -> None:
        given = shape[-1]
        target = (*shape[:-1], self.size)
        if given is None:
            raise ValueError(f"The last axis must be known. Received: input shape {shape}, output shape {target}")
        if (given > self.size) if self.mode == "zero_pad" else (given < self.size):
            verb, other = ("grow", "subsample") if self.mode == "zero_pad" else ("shrink", "zero_pad")
            raise ValueError(
                f"'{self.mode}' can only {verb} the last axis; use '{other}' or a plain layer. "
                f"Received: input shape {shape}, output shape {target}"
            )
