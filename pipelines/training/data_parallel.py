"""Training on several devices, of this process and of others that train the same net. JAX only.

Imports Keras and NumPy only, because the benchmarks run it in an environment without pydantic and TensorFlow.

Keras's own `DataParallel` binds every variable to the devices of all processes. No process can then compute anything
alone, such as gates or a validation, and the devices must divide every batch. Here variables stay ordinary ones, and
only a training step is divided.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from operator import is_
from typing import Any

import keras
import numpy as np

AXIS = "batch"
Program = Callable[[Any, Sequence[Any]], tuple[Any, Any]]
"""Function from the state and some batches to logs and the new state."""


class Replicas:
    """The devices that hold copies of a net: the first ones of each process.

    Args:
        devices: number of devices per process.

    Example:
        replicas = Replicas(2)
        total = jax.jit(jnp.sum, out_shardings=replicas.whole)(replicas.divided(np.ones(2)))
    """

    def __init__(self, devices: int) -> None:
        import jax

        # Processes in order, and each takes part with the same number: batches are divided in this order.
        found = sorted(jax.devices(), key=lambda device: (device.process_index, device.id))
        processes = [
            [device for device in found if device.process_index == process][:devices]
            for process in range(jax.process_count())
        ]
        self.local = processes[jax.process_index()]
        self.alone = len(processes) == 1
        self.mesh = jax.sharding.Mesh(np.array(processes).reshape(-1), (AXIS,))
        self.whole = jax.NamedSharding(self.mesh, jax.P())

    def along(self, axis: int) -> Any:
        """Returns the sharding that divides an array along an axis."""
        import jax

        return jax.NamedSharding(self.mesh, jax.P(*[None] * axis, AXIS))

    def divided(self, array: Any, axis: int = 0) -> Any:
        """Divides an array among the devices; each process passes its own part.

        Args:
            array: this process's part.
            axis: the axis to divide.
        """
        import jax

        return jax.make_array_from_process_local_data(self.along(axis), array)

    def copied(self, tree: Any) -> Any:
        """Copies arrays, which are equal in all processes, to all devices."""
        import jax

        if self.alone:
            return jax.device_put(tree, self.whole)

        def copy(array: Any) -> Any:
            copies = [jax.device_put(array, device) for device in self.local]
            return jax.make_array_from_single_device_arrays(array.shape, self.whole, copies)

        return jax.tree.map(copy, tree)

    def own(self, tree: Any) -> Any:
        """Returns copies on all devices as arrays that this process can use alone; see `copied`."""
        import jax

        return tree if self.alone else jax.tree.map(lambda array: array.addressable_data(0), tree)


class DataParallelModel(keras.Model):
    """A functional model whose `fit` divides each batch among devices. JAX only.

    Results equal those of one device up to rounding, also for batch normalization, whose statistics are those of the
    whole batch, and for dropout, whose masks do not depend on the division.

    In several processes, each trains a model with the same weights on its own part of every batch. Validation,
    prediction and everything else is computed by each process alone.

    Args:
        inputs: inputs of the model.
        outputs: outputs of the model.
        devices: number of devices per process; the devices of all processes must divide the batch size.
        **kwargs: further arguments of `keras.Model`.

    Example:
        model = DataParallelModel(net.input, net.output, devices=2)
    """

    train_function: Any

    def __init__(self, inputs: Any, outputs: Any, *, devices: int, **kwargs: Any) -> None:
        super().__init__(inputs, outputs, **kwargs)
        self.devices = devices

    def make_train_function(self, force: bool = False) -> None:
        """Sets `train_function`, which takes the state and an iterator over batches; called by Keras."""
        if self.train_function is not None and not force:
            return
        import jax

        replicas = Replicas(self.devices)
        program = self.program(replicas)
        # The state after the last call, as it was returned and on all devices.
        returned: list[Any] = []
        kept: Any = None

        def train_function(state: Any, iterator: Iterator[Any]) -> tuple[Any, Any]:
            nonlocal returned, kept
            batches = list(islice(iterator, self.steps_per_execution))
            if not batches:
                raise StopIteration
            leaves = jax.tree.leaves(state)
            # Copying hundreds of arrays takes as long as some training steps. It is needed at the start of an epoch,
            # when the state is on one device (a program for that would be compiled too), and after changes.
            unchanged = len(leaves) == len(returned) and all(map(is_, leaves, returned))
            if not unchanged:
                # The memory of the earlier copies is free before there are new ones.
                kept = None
                kept = replicas.copied(state)
            logs, kept = program(kept, batches)
            state = replicas.own(kept)
            returned = jax.tree.leaves(state)
            return replicas.own(logs), state

        self.train_function = train_function

    def program(self, replicas: Replicas) -> Program:
        """Returns the compiled steps of an execution, on arrays that are copied to all devices.

        Args:
            replicas: the devices.
        """
        import jax

        step = jax.jit(
            self.train_step,
            donate_argnums=0,
            in_shardings=(replicas.whole, replicas.along(0)),
            out_shardings=replicas.whole,
        )

        def steps(state: Any, batches: Sequence[Any]) -> tuple[Any, Any]:
            logs = None
            for batch in batches:
                logs, state = step(state, jax.tree.map(replicas.divided, batch))
            return logs, state

        return steps
