"""Search spaces: their hyperparameters, and how sampled values change a configuration."""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.core.config import Config, ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.core.field_help import explain
from pipelines.recipes.twins import KINDS

Value = float | int | str

FIELDS = {
    "learning_rate": "optimizer.learning_rate",
    "momentum": "optimizer.momentum",
    "decay": "schedule.factor",
    "activation": "model.activation",
    "transform_bias": "model.transform_bias",
    "depth": "model.depth",
    "width": "model.width",
    "dropout": "model.dropout",
    "weight_decay": "optimizer.weight_decay",
    "label_smoothing": "label_smoothing",
    "rand_augment": "augment.rand_augment",
    "magnitude": "augment.magnitude",
    "sharpness": "augment.sharpness",
    "rotate": "augment.rotate",
    "zoom": "augment.zoom",
    "elastic": "augment.elastic",
    "cutout": "augment.cutout",
    "mixup": "augment.mixup",
    "cutmix": "augment.cutmix",
    "batch_size": "batch_size",
    "precision": "precision",
}
"""The field of a `Config` that each hyperparameter of a `Space` sets."""

LOGARITHMIC = ("learning_rate", "weight_decay")
"""Ranges sampled on a logarithmic scale."""


def searched(space: Space) -> dict[str, tuple[Value, ...]]:
    """Returns the hyperparameters of a search with their bounds or choices.

    Example:
        searched(Space(momentum=(0.5, 0.9)))  # {"momentum": (0.5, 0.9)}
    """
    return {name: bounds for name in FIELDS if (bounds := getattr(space, name))}


def gated(model: ModelConfig) -> bool:
    """Returns whether a net has transform gates, by the name of its preset."""
    return not model.preset.endswith(KINDS)


def check(space: Space, config: Config) -> None:
    """Refuses an empty search space, and hyperparameters that have no effect on training.

    Args:
        space: the search space.
        config: the configuration that it varies.

    Raises:
        UserError: the space is refused; the message names the hyperparameter and the reason.
    """
    names = searched(space)
    if not names:
        raise UserError("the search space is empty. Name a range or choices, for example --search.learning-rate 0.01 1")
    useless = {
        "momentum": "" if hasattr(config.optimizer, "momentum") else "--optimizer.name sgd",
        "weight_decay": "" if hasattr(config.optimizer, "weight_decay") else "--optimizer.name adamw",
        "magnitude": "" if config.augment.rand_augment or "rand_augment" in names else "--augment.rand-augment 2",
        "decay": "" if hasattr(config.schedule, "factor") else "--schedule.kind exponential",
        "transform_bias": "a highway net" if not gated(config.model) else "",
    }
    if {"mixup", "cutmix"} <= names.keys():
        raise UserError(
            "images are mixed by mixup or by CutMix, not by both, so that such trials could not be trained. Remove one "
            "from the search with --search.mixup or --search.cutmix and no values."
        )
    for name, needed in useless.items():
        if name in names and needed:
            option = "--search." + name.replace("_", "-")
            raise UserError(
                f"{option} has no effect without {needed}. Remove it from the search with {option} and no values."
            )


def changed(config: Config, values: Mapping[str, Value]) -> Config:
    """Applies sampled values to a configuration.

    Args:
        config: the base configuration.
        values: values by the names of `FIELDS`; other names, and the gate bias of a net without gates, are ignored.

    Returns:
        The configuration with these values.

    Raises:
        UserError: the values are incompatible.

    Example:
        changed(config, {"learning_rate": 0.1}).optimizer.learning_rate  # 0.1
    """
    fields = config.model_dump()
    for name, value in values.items():
        if name not in FIELDS or (name == "transform_bias" and not gated(config.model)):
            continue
        *groups, field = FIELDS[name].split(".")
        target: dict[str, Any] = fields
        for group in groups:
            target = target[group]
        target[field] = value
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise UserError(explain(error, Config)) from None
