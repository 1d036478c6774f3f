"""Many small training steps on JAX as one program that uses all cores of a CPU."""

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import keras
import numpy as np

# Fewer examples do not keep a core busy: at 30 layers of 50 units, one core (Xeon, avx512_bf16) made 370 steps/s of 128
# examples, 630 of 64, 910 of 32 and 1 150 of 16.
FEWEST_EXAMPLES = 32


class ManySteps(keras.Model):
    """A functional model whose `fit`, on JAX alone, runs `steps_per_execution` steps in one compiled loop.

    Keras would run one program a step, and a product of a narrow net keeps one core busy. Here each batch is divided
    among devices, of which `pipelines.frameworks` makes one for each core. The numbers are those of one step after the
    other on one device, up to rounding, as gradients are summed by device first.

    Args:
        inputs: of the model.
        outputs: of the model.
        batch_size: examples a step.
        **kwargs: as `keras.Model`.

    Example:
        model = ManySteps(net.input, net.output, batch_size=128)
    """

    train_function: Any

    def __init__(self, inputs: Any, outputs: Any, *, batch_size: int, **kwargs: Any) -> None:
        super().__init__(inputs, outputs, **kwargs)
        self.batch_size = batch_size

    def make_train_function(self, force: bool = False) -> None:
        """Sets `train_function`, which takes the state and an iterator over batches; called by Keras."""
        if self.train_function is None or force:
            self.train_function = self._many_steps()

    def _many_steps(self) -> Callable[[Any, Iterator[Any]], tuple[Any, Any]]:
        import jax

        def step(state: Any, batch: Any) -> tuple[Any, Any]:
            logs, state = self.train_step(state, batch)
            return state, logs

        def steps(state: Any, batches: Any) -> tuple[Any, Any]:
            state, logs = jax.lax.scan(step, state, batches)
            # Metrics run on through the epoch: the last are those of all its steps so far.
            return jax.tree.map(lambda values: values[-1], logs), state

        count = devices(self.batch_size, jax.device_count())
        mesh = jax.make_mesh((count,), ("batch",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:count])
        whole, divided = jax.NamedSharding(mesh, jax.P()), jax.NamedSharding(mesh, jax.P(None, "batch"))
        program = jax.jit(steps, donate_argnums=0, in_shardings=(whole, divided), out_shardings=whole)

        def train_function(state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:
            batches = list(islice(iterator, self.steps_per_execution))
            if not batches:
                raise StopIteration
            # What an epoch starts with lies on one device; with the same state on all, the program is compiled once.
            return program(jax.device_put(state, whole), jax.tree.map(lambda *arrays: np.stack(arrays), *batches))

        return train_function


def devices(batch_size: int, available: int) -> int:
    """Among how many devices a batch is divided: as many as divide it evenly and leave each enough to do.

    Args:
        batch_size: examples a step.
        available: devices that there are.

    Example:
        devices(128, available=16)  # 4, of 32 examples each
    """
    fitting = [count for count in range(1, available + 1) if batch_size % count == 0]
    return max(count for count in fitting if count == 1 or batch_size // count >= FEWEST_EXAMPLES)
