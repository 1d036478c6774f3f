"""Search spaces: their hyperparameters, and how sampled values change a configuration."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from pydantic import ValidationError

from pipelines.core.config import HYPERPARAMETERS, Config, ModelConfig, Space
from pipelines.core.errors import UserError
from pipelines.core.field_help import either, explain, members
from pipelines.recipes.twins import KINDS

Value = float | int | str


def searched(space: Space) -> dict[str, tuple[Value, ...]]:
    """Returns the hyperparameters of a search with their bounds or choices.

    Example:
        searched(Space(momentum=(0.5, 0.9)))  # {"momentum": (0.5, 0.9)}
    """
    return {name: bounds for name in HYPERPARAMETERS if (bounds := getattr(space, name))}


def count(space: Space) -> float:
    """Counts the settings of a search space: the combinations of its choices; infinitely many with a range.

    Example:
        count(Space(activation=("relu", "tanh"), pad=(0, 2, 4)))  # 6
    """
    bounded = searched(space).items()
    return math.prod(len(bounds) if HYPERPARAMETERS[name].is_choice else math.inf for name, bounds in bounded)


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
    if {"mixup", "cutmix"} <= names.keys():
        raise UserError(
            "images are mixed by mixup or by CutMix, not by both, so that such trials could not be trained. Remove one "
            "from the search with --search.mixup or --search.cutmix and no values."
        )
    for name in names:
        if needed := _needed(name, names, config):
            option = "--search." + name.replace("_", "-")
            raise UserError(
                f"{option} has no effect without {needed}. Remove it from the search with {option} and no values."
            )


def _needed(name: str, names: Collection[str], config: Config) -> str:
    """Returns what a hyperparameter has no effect without; nothing if the configuration has it."""
    process = config.preprocess
    varied = process.contrast is None or "contrast" in names
    rows = (
        ("magnitude", config.augment.rand_augment or "rand_augment" in names, "--augment.rand-augment 2"),
        ("small_share", config.small_side or "small_side" in names, "--small-side"),
        ("transform_bias", gated(config.model), "a highway net"),
        ("freeze", config.start_from, "--from"),
        ("whitened", not config.start_from, "a net that has not been trained, and no --from"),
        ("scale", varied, "images whose contrast is not normalized"),
        ("offset", varied, "images whose contrast is not normalized"),
        ("offset", process.mean == "none" or "mean" in names, "--preprocess.mean none"),
    )
    for one, has, needed in rows:
        if one == name and not has:
            return needed
    section, _, field = HYPERPARAMETERS[name].path.rpartition(".")
    if not section or hasattr(getattr(config, section), field):
        return ""
    union = Config.model_fields[section]
    owners = [tag for tag, member in members(union).items() if field in member.model_fields]
    return f"--{section}.{union.discriminator} {either(owners)}"


def samples(name: str, bounds: tuple[Any, ...]) -> tuple[Value, ...]:
    """Returns values that a search may draw: all choices, or numbers near both ends of a range.

    The ends themselves are never drawn, and one that is 0 often turns a setting off.

    Example:
        samples("mixup", (0.0, 1.0))  # (0.01, 0.99)
    """
    if HYPERPARAMETERS[name].is_choice:
        return bounds
    low, high = bounds
    return low + 0.01 * (high - low), high - 0.01 * (high - low)


def changed(config: Config, values: Mapping[str, Value]) -> Config:
    """Applies sampled values to a configuration.

    Args:
        config: the base configuration.
        values: values by the names of `HYPERPARAMETERS`; other names, and the gate bias of a net without gates, are
            ignored.

    Returns:
        The configuration with these values.

    Raises:
        UserError: the values are incompatible.

    Example:
        changed(config, {"learning_rate": 0.1}).optimizer.learning_rate  # 0.1
    """
    fields = config.model_dump()
    for name, value in values.items():
        if name not in HYPERPARAMETERS or (name == "transform_bias" and not gated(config.model)):
            continue
        *groups, field = HYPERPARAMETERS[name].path.split(".")
        target: dict[str, Any] = fields
        for group in groups:
            target = target[group]
        target[field] = value
    try:
        return Config.model_validate(fields)
    except ValidationError as error:
        raise UserError(explain(error, Config)) from None
