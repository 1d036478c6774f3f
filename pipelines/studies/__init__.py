"""Studies as data, one file each: arms, published numbers, tables and figures. Imports no framework."""

import importlib
from typing import TYPE_CHECKING

from pipelines.core.errors import unknown

if TYPE_CHECKING:
    from pipelines.studies.framework.study import Study

# Imported on demand, because they import matplotlib.
_MODULES = {
    "depth-contrast": "pipelines.studies.papers.depth_contrast",
    "bias": "pipelines.studies.papers.bias",
    "thousand": "pipelines.studies.papers.thousand",
    "gradients": "pipelines.studies.papers.gradients.study",
    "optimization": "pipelines.studies.papers.optimization",
    "depth-twins": "pipelines.studies.papers.depth_twins",
    "depth-hundred": "pipelines.studies.papers.depth_hundred",
    "depth-routes": "pipelines.studies.papers.depth_routes",
    "data-movement": "pipelines.studies.papers.memory_traffic.study",
    "mnist": "pipelines.studies.papers.mnist",
    "cifar10": "pipelines.studies.papers.cifar10",
    "cifar100": "pipelines.studies.papers.cifar100",
    "fitnets": "pipelines.studies.papers.fitnets",
    "gates": "pipelines.studies.papers.gate_maps",
    "routing": "pipelines.studies.papers.routing",
    "lesions": "pipelines.studies.papers.lesions",
    "factors": "pipelines.studies.papers.factors.study",
}


def names() -> tuple[str, ...]:
    """Returns the names of all studies."""
    return tuple(_MODULES)


def get(name: str) -> "Study":
    """Returns a study by name.

    Args:
        name: one of `names()`.

    Raises:
        UserError: no study has this name; the error suggests the nearest one.

    Example:
        len(get("depth-contrast").arms)  # 12
    """
    if name not in _MODULES:
        raise unknown("study", name, _MODULES)
    study: Study = importlib.import_module(_MODULES[name]).STUDY
    return study
