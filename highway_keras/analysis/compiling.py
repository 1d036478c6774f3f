"""Programs that wrap a model, and the choice of whether to compile them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import keras
import numpy as np

from highway_keras.layers import HighwayStack


class Program(keras.Model):
    """A model that wraps another one to read it in a single program.

    Args:
        model: the other model; its weights are shared.
    """

    def __init__(self, model: keras.Model) -> None:
        # No autocast: under a mixed policy, it would round the inputs before the other model receives them.
        super().__init__(autocast=False)
        self.model = model
        self.jit_compile = use_xla(model)

    def predict(self, *args: Any, **kwargs: Any) -> Any:
        """Predicts like any Keras model.

        Raises:
            ValueError: if a highway layer is called inside a loop.
        """
        with _loop_errors(), _unchanged_random_state(), self._kept_weights():
            return super().predict(*args, **kwargs)

    def outputs(self, x: Any, batch_size: int | None) -> Any:
        """Predicts like `predict`; on TensorFlow, arrays bypass `tf.data`, which takes longer than a small net.

        Args:
            x: inputs as for `predict`.
            batch_size: examples per step; None if `x` is already batched.

        Returns:
            The outputs for all of `x`.

        Raises:
            ValueError: if a highway layer is called inside a loop.
        """
        one_device = keras.backend.backend() == "tensorflow" and self.distribute_strategy.num_replicas_in_sync == 1
        if not (one_device and isinstance(x, np.ndarray) and x.dtype == keras.config.floatx() and batch_size):
            return self.predict(x, batch_size=batch_size, verbose=0)
        batches = [self.predict_on_batch(x[start : start + batch_size]) for start in range(0, len(x), batch_size)]
        return keras.tree.map_structure(lambda *parts: np.concatenate(parts), *batches)

    def predict_on_batch(self, x: Any) -> Any:
        """Predicts one batch; see `predict`."""
        with _loop_errors():
            return super().predict_on_batch(x)

    @contextmanager
    def _kept_weights(self) -> Iterator[None]:
        """Restores the weights after an error, because on JAX `predict` takes them out of the model while it runs."""
        on_jax = keras.backend.backend() == "jax"
        values = [(variable, variable.value) for variable in self.model.variables] if on_jax else []
        try:
            yield
        except BaseException:
            for variable, value in values:
                if not value.is_deleted():
                    variable.assign(value)
            if on_jax:
                self.jax_state_sync()
            raise


def _unchanged_random_state() -> AbstractContextManager[None]:
    """Returns a context that restores PyTorch's random state, because every data iterator draws a number from it."""
    if keras.backend.backend() != "torch":
        return nullcontext()
    import torch

    return torch.random.fork_rng(devices=[])


@contextmanager
def _loop_errors() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        # JAX and TensorFlow: a tensor recorded inside the trace of a loop was read outside of it.
        if type(error).__name__ not in ("UnexpectedTracerError", "InaccessibleTensorError"):
            raise
        raise ValueError(
            "A highway layer is called inside a loop of the backend, such as an RNN cell, so its gates cannot be read. "
            "Build the model with keras.layers.RNN(cell, unroll=True) to read them."
        ) from error


def use_xla(model: keras.Model) -> bool:
    """Decides whether XLA should compile a program around a model.

    JAX always uses XLA. With TensorFlow on a CPU, XLA speeds up the loop of a stack, but its convolutions are slower
    than TensorFlow's own, and nets of many layers compile slowly. On PyTorch, Keras would call `torch.compile` instead,
    which takes longer than reading a model.

    Args:
        model: the wrapped model.
    """
    if keras.backend.backend() != "tensorflow":
        return bool(keras.backend.backend() == "jax")
    import tensorflow as tf

    accelerated = any(device.device_type != "CPU" for device in tf.config.list_physical_devices())
    return accelerated or any(isinstance(layer, HighwayStack) for layer in leaf_layers(model))


def leaf_layers(model: keras.Model) -> Iterator[keras.layers.Layer]:
    """Yields the layers of a model and of its nested models."""
    for layer in model.layers:
        if isinstance(layer, keras.Model):
            yield from leaf_layers(layer)
        else:
            yield layer
