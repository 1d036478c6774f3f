"""Several JAX training steps per execution, or one that is divided: one program on all cores of a CPU.

Imports Keras and NumPy only, because the benchmarks run it in an environment without pydantic and TensorFlow.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
import numpy as np

from pipelines.training.data_parallel import AXIS, DataParallelModel, Program, Replicas
from pipelines.training.divided_dropout import DividedDropout, has_other_state

# Fewer examples do not keep a core busy.
FEWEST_EXAMPLES = 32
# In shallow nets, devices wait for each other longer than they save. With layers of 50 units, two devices are slower
# than one at 10 layers and faster at 30 (`make bench BENCH=dense`).
FEWEST_LAYERS = 16
# The products of wide layers keep all cores busy by themselves, and each device would update all weights.
MOST_UNITS = 150
# Elements up to which copying a gradient is faster than a separate exchange.
SMALL = 65_536


class MultiStepModel(DataParallelModel):
    """A functional model whose `fit` runs `steps_per_execution` steps in one compiled loop. JAX only.

    Keras would run one program per step, and the matrix products of a narrow net keep only one core busy. Here each
    batch may be divided among devices: one per core (`pipelines.core.frameworks`), or those of several processes.
    Results equal those of single steps on one device up to rounding, because gradients are averaged over devices first,
    as one array: processes on CPUs exchange arrays one after the other, and each waits for the slowest process.

    As in Keras, the loss must be a mean over the batch and the state of a metric a sum over examples. A model with
    other state than that of a `DividedDropout` trains on one device.

    Args:
        inputs: inputs of the model.
        outputs: outputs of the model.
        devices: number of devices that each batch is divided among; it must divide the batch size.
        **kwargs: further arguments of `keras.Model`.

    Example:
        model = MultiStepModel(net.input, net.output, devices=device_count(batch_size=128, available=2))
    """

    def __init__(self, inputs: Any, outputs: Any, *, devices: int, **kwargs: Any) -> None:
        super().__init__(inputs, outputs, devices=devices, **kwargs)
        if has_other_state(self, DividedDropout):
            self.devices = 1

    def compute_loss_and_updates(self, trainable_variables: Any, *args: Any, **kwargs: Any) -> Any:
        """Keras's method, with gradients averaged over devices."""
        return super().compute_loss_and_updates(_averaging()(trainable_variables), *args, **kwargs)

    def program(self, replicas: Replicas) -> Program:
        """Returns the compiled steps of an execution in one program."""
        import jax

        whole, divided = replicas.whole, replicas.along(1)

        def step(state: Any, batch: Any) -> tuple[Any, None]:
            _, state = self.train_step(state, batch)
            return state, None

        @partial(
            jax.shard_map,
            mesh=replicas.mesh,
            in_specs=(whole.spec, divided.spec),
            out_specs=whole.spec,
            check_vma=False,
        )
        def steps(state: Any, batches: Any) -> Any:
            *state, metrics = state
            state = (*state, jax.tree.map(jax.numpy.zeros_like, metrics))
            if len(jax.tree.leaves(batches)[0]) == 1:
                # XLA's convolutions are slow in loops.
                (*state, own), _ = step(state, jax.tree.map(lambda array: array[0], batches))
            else:
                (*state, own), _ = jax.lax.scan(step, state, batches)
            return *state, jax.tree.map(jax.numpy.add, metrics, jax.lax.psum(own, AXIS))

        def execution(state: Any, batches: Any) -> tuple[Any, Any]:
            state = steps(state, batches)
            with keras.StatelessScope(list(zip(self.metrics_variables, state[-1], strict=True))):
                return self.get_metrics_result(), state

        compiled = jax.jit(execution, donate_argnums=0, in_shardings=(whole, divided), out_shardings=whole)

        def stacked(*arrays: Any) -> Any:
            """Stacks batches into one array, copying each device's part once."""
            size = len(arrays[0]) // len(replicas.local)
            local = [
                jax.device_put(np.stack([array[number * size : (number + 1) * size] for array in arrays]), device)
                for number, device in enumerate(replicas.local)
            ]
            shape = len(arrays), size * replicas.mesh.size, *arrays[0].shape[1:]
            return jax.make_array_from_single_device_arrays(shape, divided, local)

        return lambda state, batches: compiled(state, jax.tree.map(stacked, *batches))


def _averaging() -> Callable[[Any], Any]:
    """Returns an identity that averages its gradients over devices: small ones together, as each exchange must wait."""
    import jax
    from jax.flatten_util import ravel_pytree

    @jax.custom_vjp
    def identity(values: Any) -> Any:
        return values

    def mean(_: None, gradients: Any) -> tuple[Any]:
        if jax.lax.axis_size(AXIS) == 1:
            return (gradients,)
        # XLA would fuse what computes the gradients into the concatenation, and find the source of each element anew.
        gradients = jax.lax.optimization_barrier(gradients)
        large = [gradient for gradient in gradients if gradient.size > SMALL]
        small, unravel = ravel_pytree([gradient for gradient in gradients if gradient.size <= SMALL])
        large, small = jax.lax.pmean((large, small), AXIS)
        of_large, of_small = iter(large), iter(unravel(small))
        return ([next(of_large if gradient.size > SMALL else of_small) for gradient in gradients],)

    identity.defvjp(lambda values: (values, None), mean)
    return identity


def device_count(batch_size: int, available: int, stack: tuple[int, int] | None = None) -> int:
    """Returns the number of devices for a batch: as many as divide it evenly with enough work for each.

    Args:
        batch_size: examples per step.
        available: number of devices.
        stack: depth and units of the stack; with fewer than `FEWEST_LAYERS` or more than `MOST_UNITS`, one device is
            faster. None for a deep and narrow one.

    Example:
        device_count(128, available=16, stack=(100, 50))  # 4, of 32 examples each
    """
    if stack and (stack[0] < FEWEST_LAYERS or stack[1] > MOST_UNITS):
        return 1
    fitting = [count for count in range(1, available + 1) if batch_size % count == 0]
    return max(count for count in fitting if count == 1 or batch_size // count >= FEWEST_EXAMPLES)
