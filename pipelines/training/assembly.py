"""Puts together what training needs, without writing anything."""

from dataclasses import dataclass
from pathlib import Path

import keras

from pipelines.core import environment
from pipelines.core.config import Config
from pipelines.core.errors import UserError
from pipelines.core.run import Machine, Precision
from pipelines.core.url import location
from pipelines.data import sources
from pipelines.data.sources import DataInfo
from pipelines.training import fine_tuning, memory
from pipelines.training.devices import check, processes, scope
from pipelines.training.net import build, compiled
from pipelines.training.precision import resolve


@dataclass(frozen=True)
class Assembly:
    """A net that is ready for training.

    Args:
        data: the data.
        machine: the hardware.
        precision: the number format and its reason.
        steps_per_epoch: steps in an epoch.
        net: the net without loss and optimizer, so that it can be saved.
        model: a compiled model with the same weights.
        replaced: name of the last layer if it is not that of the net whose weights training starts from.
    """

    data: DataInfo
    machine: Machine
    precision: Precision
    steps_per_epoch: int
    net: keras.Model
    model: keras.Model
    replaced: str | None


def assemble(config: Config, data_dir: Path | None, devices: int | None = None) -> Assembly:
    """Builds the net and its optimizer for the data and the machine.

    Args:
        config: the configuration.
        data_dir: folder of prepared data; None for the TFDS default.
        devices: number of devices per process to divide each batch among; None chooses it.

    Raises:
        UserError: the configuration cannot be trained: its data are not available, its net or schedule is invalid, it
            does not fit into memory, or the devices do not exist or cannot divide its batches.
    """
    data = sources.describe(config.data, data_dir, config.validation, config.subset)
    steps_per_epoch = data.counts["train"] // config.batch_size
    if not steps_per_epoch:
        raise UserError(
            f"a batch of {config.batch_size} is larger than the {data.counts['train']} training examples of "
            f"{data.name}. Lower --batch-size."
        )
    balanced = {"--class-weights": config.class_weights, "--sampling": config.sampling}
    for option, value in balanced.items():
        if value == "balanced" and data.task != "classification":
            has = "any number of them for each example" if data.multi_label else "none"
            raise UserError(f"{option} balanced is for classes, and {data.name} has {has}. Leave it out.")
    if config.patience and not data.counts["validation"]:
        raise UserError(
            f"patience needs validation examples, and {data.name} has none. Hold some out: --validation NUMBER. "
            f"Received: patience={config.patience}."
        )
    check(config, devices)
    machine = environment.machine()
    accelerated = bool(machine.accelerators)
    if not accelerated:
        memory.check_width(config)
    with scope(devices or 1):
        net = build(config, data, "float32")
        precision = resolve(config.precision, net, machine)
        if precision.policy != "float32":
            net = build(config, data, precision.policy)
        if not accelerated:
            mine = config.model_copy(update={"batch_size": config.batch_size // processes()})
            memory.check(net, mine, precision.policy)
        replaced = fine_tuning.assign(net, location(config.start_from)) if config.start_from else None
        model = compiled(net, config, precision.policy, steps_per_epoch, accelerated, task=data.task, devices=devices)
    return Assembly(data, machine, precision, steps_per_epoch, net, model, replaced)
