"""The origin that a recipe states for each field of its configuration, by dotted name."""

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


def tags(recipe: Recipe) -> dict[str, str]:
    """Returns the tag of each tagged field: "recorded", "count-matched" or "assumed".

    Example:
        tags(recipe)["optimizer.learning_rate"]  # "recorded"
    """
    groups = recipe.provenance.model_dump()
    return {field: group.replace("_", "-") for group, fields in groups.items() for field in fields}
