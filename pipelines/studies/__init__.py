"""Studies: what is trained, what a source says of it, and what is drawn of it; a file each. No framework needed."""

import importlib
from typing import TYPE_CHECKING

from pipelines.errors import unknown

if TYPE_CHECKING:
    from pipelines.studies.study import Study

MEASURED = "measured.npz"
"""In a run directory: what its study measures besides the accuracy."""
# Imported one by one, as they bring matplotlib.
_MODULES = {
    "depth-contrast": "pipelines.studies.depth_contrast",
    "bias": "pipelines.studies.bias",
    "thousand": "pipelines.studies.thousand",
    "gradients": "pipelines.studies.gradients.study",
    "optimization": "pipelines.studies.optimization",
    "depth-twins": "pipelines.studies.depth_twins",
    "depth-hundred": "pipelines.studies.depth_hundred",
    "depth-routes": "pipelines.studies.depth_routes",
    "data-movement": "pipelines.studies.data_movement",
    "mnist": "pipelines.studies.mnist",
    "cifar10": "pipelines.studies.cifar10",
    "cifar100": "pipelines.studies.cifar100",
    "fitnets": "pipelines.studies.fitnets",
    "gates": "pipelines.studies.gate_maps",
    "routing": "pipelines.studies.routing",
    "lesions": "pipelines.studies.lesions",
    "factors": "pipelines.studies.factors",
}


def names() -> tuple[str, ...]:
    """The names of all studies."""
    return tuple(_MODULES)


def get(name: str) -> "Study":
    """The study of that name.

    Args:
        name: one of `names()`.

    Returns:
        The study.

    Raises:
        UserError: there is none of that name; the nearest is proposed.

    Example:
        len(get("depth-contrast").arms)  # 12
    """
    if name not in _MODULES:
        raise unknown("study", name, _MODULES)
    study: Study = importlib.import_module(_MODULES[name]).STUDY
    return study
