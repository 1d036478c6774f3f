"""The hyperparameters that a search can vary, derived from the fields of a configuration.

Numbers with a fraction have a range; whole numbers, words and truth values are choices. Imports no framework.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from pipelines.core.field_help import bare, is_group, members, options
from pipelines.core.frozen import Positive

# The net, the data, the length and speed of training, and the seed.
NEVER_SEARCHED = {
    *("recipe", "model.preset", "model.match", "start_from", "optimizer.name", "schedule.kind"),
    *("data", "target", "task", "label_separator", "image_fit", "group", "skip_damaged", "validation"),
    *("subset.train", "subset.test", "subset.seed", "epochs", "patience", "seed", "steps_per_execution"),
}
# They are drawn in this order: with another, a search that an earlier version began would continue with other settings.
DRAWN_FIRST = {
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
# Numbers of at least 0 whose range is one of magnitudes, without 0.
MAGNITUDES = ("optimizer.weight_decay",)


@dataclass(frozen=True)
class Hyperparameter:
    """A field of a configuration as a search varies it.

    Args:
        path: dotted name of the field.
        values: type of its range or list of values: a tuple of values within the limits of the field.
        is_choice: whether values are listed; otherwise they are drawn from a range.
        logarithmic: whether the range is sampled on a logarithmic scale.
    """

    path: str
    values: Any
    is_choice: bool
    logarithmic: bool

    @property
    def description(self) -> str:
        """Its help: the field that it sets."""
        return f"{'Choice' if self.is_choice else 'Range'} of `{self.path}`{', log-uniform' * self.logarithmic}."


def hyperparameters(config: type[BaseModel]) -> dict[str, Hyperparameter]:
    """Returns the hyperparameters of a configuration by name: the last part of the field's, or all if that is taken.

    Args:
        config: pydantic model of the configuration.

    Example:
        hyperparameters(Config)["momentum"].path  # "optimizer.momentum"
    """
    found: dict[str, Hyperparameter] = {}
    for path, field in _leaves(config):
        if path not in NEVER_SEARCHED and path not in found and (one := _hyperparameter(path, field)):
            found[path] = one
    named = {name: found.pop(path) for name, path in DRAWN_FIRST.items()}
    for path, one in found.items():
        last = path.rpartition(".")[2]
        named[path.replace(".", "_") if last in named else last] = one
    return named


def _leaves(kind: type[BaseModel], *above: str) -> Iterator[tuple[str, FieldInfo]]:
    """Yields all fields by dotted name, those of every member of a tagged union included."""
    for name, field in kind.model_fields.items():
        groups: list[Any] = [*members(field).values()] or [field.annotation]
        for group in groups:
            if is_group(group):
                yield from _leaves(group, *above, name)
            else:
                yield ".".join((*above, name)), field


def _hyperparameter(path: str, field: FieldInfo) -> Hyperparameter | None:
    """Returns a hyperparameter with the numbers that a field takes, or else its words; None for lists."""
    kinds: dict[Any, list[Any]] = dict(map(bare, [Positive] if path in MAGNITUDES else options(field) or [field]))
    order: list[Any] = [float, int, bool, str, *(kind for kind in kinds if get_origin(kind) is Literal)]
    kind = next((kind for kind in order if kind in kinds), None)
    if kind is None:
        return None
    limits = kinds[kind]
    bounded = any(hasattr(limit, end) for limit in limits for end in ("le", "lt"))
    scale = kind is float and not bounded and any(hasattr(limit, "gt") for limit in limits)
    value = Annotated[(kind, *limits)] if limits else kind
    return Hyperparameter(path, tuple[value, ...], kind is not float, scale)  # type: ignore[valid-type]
