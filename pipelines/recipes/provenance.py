"""Fields of a configuration by dotted name, and the origin that a recipe states for each."""

from typing import Any

from pydantic import BaseModel

from pipelines.core.config import Recipe

SOLVER = (
    "optimizer.name",
    "optimizer.learning_rate",
    "optimizer.momentum",
    "optimizer.nesterov",
    "optimizer.bias_multiplier",
    "schedule.kind",
    "schedule.boundaries",
    "schedule.factor",
    "epochs",
    "batch_size",
)
"""Fields recorded in the authors' Caffe solver files."""


def flat(config: BaseModel) -> dict[str, Any]:
    """Returns all values of a configuration by dotted name.

    Example:
        flat(recipe.config)["optimizer.learning_rate"]  # 0.01
    """
    values: dict[str, Any] = {}
    for name in type(config).model_fields:
        value = getattr(config, name)
        if isinstance(value, BaseModel):
            values |= {f"{name}.{inner}": item for inner, item in flat(value).items()}
        else:
            values[name] = value
    return values


def tags(recipe: Recipe) -> dict[str, str]:
    """Returns the tag of each tagged field: "recorded", "count-matched" or "assumed".

    Example:
        tags(recipe)["optimizer.learning_rate"]  # "recorded"
    """
    groups = recipe.provenance.model_dump()
    return {field: group.replace("_", "-") for group, fields in groups.items() for field in fields}
