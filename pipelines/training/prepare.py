"""All that a configuration decides before the first step, without writing anything."""

from dataclasses import dataclass
from pathlib import Path

import keras

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.run import Machine, Precision
from pipelines.data import sources
from pipelines.data.sources import DataInfo
from pipelines.training.net import build, compiled
from pipelines.training.precision import resolve


@dataclass(frozen=True)
class Prepared:
    """A net that is ready to be trained.

    Args:
        data: what it is trained on.
        machine: the hardware.
        precision: the number format, and why.
        steps_per_epoch: steps in an epoch.
        net: the net alone, without loss and optimiser, so that it can be saved.
        model: the same weights, compiled.
    """

    data: DataInfo
    machine: Machine
    precision: Precision
    steps_per_epoch: int
    net: keras.Model
    model: keras.Model


def prepare(config: Config, data_dir: Path | None) -> Prepared:
    """Looks at data and machine, and makes the net and its optimiser.

    Args:
        config: what to train.
        data_dir: where prepared data lies; None for the default of TFDS.

    Returns:
        What training begins with.

    Raises:
        UserError: the configuration cannot be trained: data, net, optimiser or schedule cannot be what is asked for.
    """
    data = sources.describe(config.data, data_dir, config.validation, config.subset)
    steps_per_epoch = data.counts["train"] // config.batch_size
    if not steps_per_epoch:
        raise UserError(
            f"a batch of {config.batch_size} is larger than the {data.counts['train']} training examples of "
            f"{data.name}. Lower --batch-size."
        )
    machine = environment.machine()
    net = build(config, data, "float32")
    precision = resolve(config.precision, net, machine)
    if precision.policy != "float32":
        net = build(config, data, precision.policy)
    accelerated = bool(machine.accelerators)
    model = compiled(net, config, precision.policy, steps_per_epoch, accelerated, regression=not data.labels)
    return Prepared(data, machine, precision, steps_per_epoch, net, model)
