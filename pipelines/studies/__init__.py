"""Studies as data, one file each: arms, published numbers, tables and figures. Imports no framework."""

import importlib
from typing import TYPE_CHECKING

from pipelines.core.errors import unknown

if TYPE_CHECKING:
    from pipelines.studies.framework.study import Study

# Imported on demand, because they import matplotlib.
_MODULES = {
    "depth-contrast": "papers.depth_contrast",
    "bias": "papers.bias",
    "thousand": "papers.thousand",
    "gradients": "papers.gradients.study",
    "optimization": "papers.optimization",
    "depth-twins": "papers.depth_twins",
    "depth-hundred": "papers.depth_hundred",
    "depth-routes": "papers.depth_routes",
    # Published under this name; everywhere else, it is memory traffic.
    "data-movement": "papers.memory_traffic.study",
    "mnist": "papers.mnist",
    "cifar10": "papers.cifar10",
    "cifar100": "papers.cifar100",
    "fitnets": "papers.fitnets",
    "modern": "papers.modern",
    "conv-gate": "papers.conv_gate.study",
    "gates": "papers.gate_maps",
    "routing": "papers.routing",
    "lesions": "papers.lesions",
    "factors": "papers.factors.study",
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
    study: Study = importlib.import_module(f"{__name__}.{_MODULES[name]}").STUDY
    return study
