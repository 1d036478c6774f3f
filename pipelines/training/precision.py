"""The number format of a run, and the choice of "auto" for a machine.

On a CPU with bfloat16 instructions, convolutions train faster in mixed_bfloat16 than in float32 (`make bench
BENCH=conv`), and small dense layers more slowly.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import keras

from highway_keras import ConvHighway
from pipelines.core import environment
from pipelines.core.run import Machine, Precision

Policy = Literal["float32", "mixed_bfloat16", "mixed_float16"]


def resolve(wanted: Literal["auto"] | Policy, net: keras.Model, machine: Machine) -> Precision:
    """Chooses the policy to train with.

    Args:
        wanted: the precision of the configuration.
        net: the net, in any precision; on a CPU the choice depends on whether it has convolutions.
        machine: the hardware.

    Returns:
        The policy and the reason for it.

    Example:
        resolve("auto", net, environment.machine()).policy  # "mixed_bfloat16"
    """
    if wanted != "auto":
        needed = environment.NARROW.get(wanted)
        if machine.accelerators or needed is None or not {*needed}.isdisjoint(machine.cpu_features):
            return Precision(policy=wanted, reason="asked for")
        reason = "asked for; this CPU is not known to compute in it: slow, and TensorFlow adds gradients inexactly"
        return Precision(policy=wanted, reason=reason)
    return _of_accelerator(machine.accelerators[0]) if machine.accelerators else _of_cpu(net, machine)


def _of_accelerator(name: str) -> Precision:
    capability = environment.compute_capability()
    if capability is None or capability >= (8, 0):
        return Precision(policy="mixed_bfloat16", reason=f"{name} multiplies bfloat16")
    if capability >= (7, 0):
        return Precision(policy="mixed_float16", reason=f"{name} multiplies float16, not bfloat16")
    return Precision(policy="float32", reason=f"{name} has no units for shorter formats")


def _of_cpu(net: keras.Model, machine: Machine) -> Precision:
    fast = [feature for feature in environment.NARROW["mixed_bfloat16"] if feature in machine.cpu_features]
    if not fast:
        return Precision(policy="float32", reason="this CPU does not multiply bfloat16")
    if any(isinstance(layer, (keras.layers.Conv2D, ConvHighway)) for layer in net.layers):
        return Precision(policy="mixed_bfloat16", reason=f"convolutions on a CPU with {fast[0]}")
    return Precision(policy="float32", reason="small dense products gain nothing from bfloat16 on a CPU")


@contextmanager
def policy(name: Policy) -> Iterator[None]:
    """Sets Keras's global dtype policy until the block ends.

    Keras adds loss scaling only to a model that is built under the global policy, whatever the policies of its layers.
    """
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
