"""The devices that each batch is divided among, and the processes that they belong to."""

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import keras

from highway_keras import HighwayStack
from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.hosts import check_batch_size
from pipelines.training.steps_per_execution import device_count


def processes() -> int:
    """Returns the number of processes that train the run together."""
    if keras.backend.backend() != "jax":
        return 1
    import jax

    return jax.process_count()


def available() -> int:
    """Returns the number of devices of this process that the backend trains on: accelerators, or the CPU's parts."""
    if keras.backend.backend() == "jax":
        import jax

        return jax.local_device_count()
    import tensorflow as tf

    return len(tf.config.list_logical_devices("GPU") or tf.config.list_logical_devices("CPU"))


def used(model: keras.Model) -> int:
    """Returns the number of devices that each batch of a model is divided among, in all processes."""
    if keras.backend.backend() == "tensorflow":
        return int(model.distribute_strategy.num_replicas_in_sync)
    return int(getattr(model, "devices", 1)) * processes()


def check(config: Config, asked: int | None) -> None:
    """Refuses devices that do not exist or cannot divide a batch.

    Args:
        config: batch size and augmentation.
        asked: number of devices per process; None if none was asked for.

    Raises:
        UserError: as above, or the backend trains on one device only.
    """
    each, hosts = asked or 1, processes()
    if each > 1 and keras.backend.backend() not in ("jax", "tensorflow"):
        raise UserError(
            f"--devices {each} needs KERAS_BACKEND=jax or KERAS_BACKEND=tensorflow. On {keras.backend.backend()}, "
            "training uses one device."
        )
    if each > 1 and (found := available()) < each:
        raise UserError(
            f"--devices {each} is more than this process has: {found}. Lower it; JAX_NUM_CPU_DEVICES and "
            "CUDA_VISIBLE_DEVICES, if set, limit the number."
        )
    check_batch_size(config, hosts, each)


def fitting(batch_size: int, wanted: int) -> int:
    """Returns the number of devices per process to use: `wanted`, or fewer if that is impossible.

    Args:
        batch_size: examples per step, in all processes.
        wanted: number of devices per process that was asked for, or that an interrupted run had.
    """
    share, found = batch_size // processes(), available()
    return wanted if wanted <= found and share % wanted == 0 else device_count(share, min(wanted, found))


def scope(devices: int) -> AbstractContextManager[Any]:
    """Returns the context in which a net is built and compiled; only TensorFlow's mirrored variables need one.

    Args:
        devices: number of devices.
    """
    if keras.backend.backend() != "tensorflow" or devices == 1:
        return nullcontext()
    return _strategy(devices).scope()


@functools.cache
def _strategy(devices: int) -> Any:
    """Returns a strategy for all nets of this process: two strategies would receive each other's messages."""
    import tensorflow as tf

    kind = "GPU" if tf.config.list_logical_devices("GPU") else "CPU"
    return tf.distribute.MirroredStrategy([f"{kind}:{number}" for number in range(devices)])


def unrecorded(net: keras.Model, config: Config, accelerated: bool) -> int:
    """Returns the number of devices of a run whose version did not record it: for stacks on JAX, as many as cores.

    Args:
        net: the net.
        config: batch size.
        accelerated: whether there is a GPU or TPU.
    """
    stacked = any(isinstance(layer, HighwayStack) for layer in net.layers) and not net.non_trainable_variables
    divided = stacked and not accelerated and keras.backend.backend() == "jax"
    return device_count(config.batch_size, environment.cores()) if divided else 1
