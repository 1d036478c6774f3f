"""A lower bound on the memory of training, so that a run that cannot fit is refused before the system kills it."""

import math
from pathlib import Path

import keras

from highway_keras import HighwayStack
from highway_keras.models.presets import FAMILIES
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.training.precision import Policy

# Numbers that an optimizer keeps for each weight.
SLOTS = {"sgd": 1, "adam": 2, "adamw": 2, "lion": 1, "muon": 1}
# Arrays that a highway layer keeps for its gradient: input, block state H and gate T.
KEPT = 3
GIGABYTE = 1e9


def check(net: keras.Model, config: Config, precision: Policy) -> None:
    """Refuses a net whose training takes more memory than is available.

    Args:
        net: the net, whose weights take up memory already.
        config: optimizer and batch size.
        precision: Keras dtype policy of the net.

    Raises:
        UserError: gradient, optimizer and the activations of a batch do not fit.
    """
    state, activations = state_bytes(net, config), activation_bytes(net, config.batch_size, precision)
    free = available()
    if free is None or state + activations <= free:
        return
    whole = (state + activations) / GIGABYTE
    parts = f"gradient and optimizer {state / GIGABYTE:.1f}, activations of a batch {activations / GIGABYTE:.1f}"
    raise UserError(
        f"training {config.recipe} takes at least {whole:.1f} GB of memory ({parts}) "
        f"besides the net, and {free / GIGABYTE:.1f} GB are available. Lower --model.width, --model.depth, "
        "--image-size or --batch-size."
    )


def check_width(config: Config) -> None:
    """Refuses a dense net that is too wide for the memory, before its weights are drawn.

    Args:
        config: net and optimizer; nets that are not dense are left to `check`.

    Raises:
        UserError: the weights of its layers, their gradient and the state of the optimizer do not fit.
    """
    family, free = FAMILIES.get(config.model.preset.removesuffix("_plain").removesuffix("_residual")), available()
    if family is None or family.factory == "conv" or free is None:
        return
    width, depth = config.model.width or family.arguments["width"], config.model.depth or family.arguments["depth"]
    # At least the weights of H, for each block.
    needed = 4 * (depth - 1) * width**2 * (1 if config.freeze else 2 + SLOTS[config.optimizer.name])
    if needed > free:
        raise UserError(
            f"training {config.recipe} takes at least {needed / GIGABYTE:.1f} GB of memory for {depth} layers of "
            f"{width:,} units, and {free / GIGABYTE:.1f} GB are available. Lower --model.width or --model.depth."
        )


def is_exhausted(error: Exception) -> bool:
    """Returns whether a framework or NumPy could not get the memory that it asked for."""
    return isinstance(error, MemoryError) or "Exhausted" in type(error).__name__ or "RESOURCE_EXHAUSTED" in str(error)


def trained_weights(net: keras.Model) -> int:
    """Returns the number of trainable weights."""
    return sum(math.prod(variable.shape) for variable in net.trainable_variables)


def state_bytes(net: keras.Model, config: Config) -> int:
    """Returns the size of the gradient and of the state of the optimizer."""
    return 4 * trained_weights(net) * (1 + SLOTS[config.optimizer.name] + (config.optimizer.ema is not None))


def activation_bytes(net: keras.Model, batch_size: int, precision: Policy) -> int:
    """Returns the size of the outputs of trained layers, which the gradient needs.

    Args:
        net: the net.
        batch_size: examples per step.
        precision: Keras dtype policy of the net.
    """
    numbers = 0
    for layer in net.layers:
        if layer.trainable:
            outputs = sum(math.prod(tensor.shape[1:]) for tensor in keras.tree.flatten(layer.output))
            numbers += outputs * (KEPT * layer.depth if isinstance(layer, HighwayStack) else 1)
    return batch_size * numbers * (4 if precision == "float32" else 2)


def available(system: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Returns the bytes of memory that this process can still get; None where the system does not report it.

    Args:
        system: Linux's description of the memory.
        group: folder of the control group, which has a limit in a container.
    """
    if not system.is_file():
        return None
    lines = (line.split() for line in system.read_text().splitlines())
    free = next((1024 * int(words[1]) for words in lines if words[0] == "MemAvailable:"), None)
    try:
        limit, used = (int((group / name).read_text()) for name in ("memory.max", "memory.current"))
        reclaimable = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())["inactive_file"]
    except (OSError, ValueError, KeyError):
        # Without a limit, memory.max is a word.
        return free
    in_group = limit - used + int(reclaimable)
    return in_group if free is None else min(free, in_group)
