"""Programs that read a model, and whether XLA compiles them."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import keras

from highway_keras.layers import HighwayStack


class Program(keras.Model):
    """A model around another one, that reads it in one compiled program.

    Args:
        model: the other model; its weights are not copied.
        **kwargs: of a Keras model.
    """

    def __init__(self, model: keras.Model, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.model = model
        self.jit_compile = pays(model)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """As that of every model.

        Raises:
            ValueError: if a highway layer is called inside a loop.
        """
        with _outside_of_loops():
            return super().predict(*args, **kwargs)

    def predict_on_batch(self, x: Any) -> Any:
        """As that of every model; see `predict`."""
        with _outside_of_loops():
            return super().predict_on_batch(x)


@contextmanager
def _outside_of_loops() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # Of JAX and of TensorFlow: what was recorded inside the trace of a loop is read outside of it.
        if type(error).__name__ not in ("UnexpectedTracerError", "InaccessibleTensorError"):
            raise
        raise ValueError(
            "A highway layer is called inside a loop of the backend, as in the cell of an RNN, and its gates cannot be "
            "read from outside. Build the net with keras.layers.RNN(cell, unroll=True) to read them."
        ) from error


def pays(model: keras.Model) -> bool:
    """Whether a program around a model should be compiled by XLA.

    JAX knows nothing else. With TensorFlow on a CPU it pays for the loop of a stack, while its convolutions are several
    times slower than TensorFlow's own, and a net of many layers takes it long to compile (docs/log.md).

    Args:
        model: the model that is read.
    """
    if keras.backend.backend() != "tensorflow":
        return True
    import tensorflow as tf

    accelerated = any(device.device_type != "CPU" for device in tf.config.list_physical_devices())
    return accelerated or any(isinstance(layer, HighwayStack) for layer in leaves(model))


def leaves(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """The layers of a model and of the models inside it."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from leaves(layer)
        else:
            yield layer
