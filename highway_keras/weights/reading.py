"""The weights of highway layers, read from arrays by name according to a layout."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from highway_keras.weights.files import to_numpy
from highway_keras.weights.layouts import WeightLayout

NUMBER = "{n}"
SHOWN = 8
Values = dict[str, np.ndarray]


def layer_values(arrays: Mapping[str, Any], layout: WeightLayout, prefix: str) -> list[Values]:
    """Returns the weights of each layer in the order of their numbers, in the axes and signs of Keras's layers.

    Args:
        arrays: arrays by name.
        layout: names, axes and signs.
        prefix: start of the names.

    Returns:
        For each layer `kernel`, `transform_kernel`, `transform_bias`, and `bias` or `gamma`, `beta`, `moving_mean` and
        `moving_variance`.

    Raises:
        ValueError: if names are missing or left over, the numbers of the layers have gaps, or a joined kernel cannot be
            halved.
    """
    templates = {key: prefix + name for key, name in _names(layout).items()}
    numbers = _numbers(arrays, templates.values())
    rows = [{key: name.replace(NUMBER, number) for key, name in templates.items()} for number in numbers]
    used = {name for row in rows for name in row.values()}
    scope = templates["kernel"].partition(NUMBER)[0] if NUMBER in templates["kernel"] else prefix
    left = [name for name in arrays if name.startswith(scope) and name not in used and not _is_ignored(name, layout)]
    missing = sorted(used - arrays.keys())
    if not rows or missing or left:
        raise ValueError(
            f"The names do not fit the layout of {layout.source} with prefix={prefix!r}. "
            f"Expected names such as '{templates['kernel']}'. "
            f"Missing: {_listed(missing)}. Left over: {_listed(left)}. All: {_listed(arrays)}"
        )
    # In a prefix, {n} may count parts without weights, such as dropout between the layers.
    if NUMBER not in prefix and numbers != [""] and len(numbers) <= int(numbers[-1]) - int(numbers[0]):
        raise ValueError(
            "The numbers of the layers have gaps, so that layers may be missing. If none is, pass a mapping whose "
            f"names have consecutive numbers. Received: layers {_listed(numbers)}"
        )
    return [_converted({key: to_numpy(arrays[name]) for key, name in row.items()}, layout) for row in rows]


def dense_values(arrays: Mapping[str, Any], layout: WeightLayout, prefix: str) -> list[Values]:
    """Returns `kernel` and `bias` of the dense layers around the highway layers.

    Raises:
        ValueError: if names are missing.
    """
    rows = []
    for name, _ in layout.dense:
        names = {"kernel": f"{prefix}{name}.weight", "bias": f"{prefix}{name}.bias"}
        if missing := sorted(set(names.values()) - arrays.keys()):
            raise ValueError(f"Missing: {_listed(missing)}. All: {_listed(arrays)}")
        found = {key: to_numpy(arrays[full]) for key, full in names.items()}
        rows.append({**found, "kernel": _inputs_first(found["kernel"], layout)})
    return rows


def _names(layout: WeightLayout) -> dict[str, str]:
    names: dict[str, str] = {"kernel": layout.kernel, "bias": layout.bias}
    if layout.gate_kernel is not None and layout.gate_bias is not None:
        names |= {"gate_kernel": layout.gate_kernel, "gate_bias": layout.gate_bias}
    if layout.normalization is not None:
        ends = {"bias": "bias", "gamma": "weight", "moving_mean": "running_mean", "moving_variance": "running_var"}
        names |= {key: f"{layout.normalization}.{end}" for key, end in ends.items()}
    return names


def _numbers(arrays: Iterable[str], templates: Iterable[str]) -> list[str]:
    """Returns the numbers of the layers in ascending order; one empty number if the names have none."""
    templates = list(templates)
    if not any(NUMBER in template for template in templates):
        return [""] if any(template in arrays for template in templates) else []
    found = set()
    for template in templates:
        first, *rest = (re.escape(part) for part in template.split(NUMBER))
        pattern = re.compile(first + r"(?P<n>\d+)" + r"(?P=n)".join(rest))
        found |= {match["n"] for name in arrays if (match := pattern.fullmatch(name))}
    return sorted(found, key=int)


def _is_ignored(name: str, layout: WeightLayout) -> bool:
    return layout.ignored is not None and re.search(f"(?:{layout.ignored})$", name) is not None


def _inputs_first(kernel: np.ndarray, layout: WeightLayout) -> np.ndarray:
    """Moves the axes of a kernel to `(..., inputs, outputs)`."""
    return np.moveaxis(kernel, (0, 1), (-1, -2)) if layout.outputs_first and kernel.ndim > 1 else kernel


def _converted(found: Values, layout: WeightLayout) -> Values:
    values = {key: _inputs_first(array, layout) if key.endswith("kernel") else array for key, array in found.items()}
    if "gate_kernel" not in values:
        for key in ("kernel", "bias"):
            if values[key].ndim == 0 or values[key].shape[-1] % 2:
                raise ValueError(f"A joined {key} holds H and the gate. Received: shape {found[key].shape}")
            values[key], values[f"gate_{key}"] = np.split(values[key], 2, axis=-1)
    sign = -1 if layout.gates_carry else 1
    values["transform_kernel"] = sign * values.pop("gate_kernel")
    values["transform_bias"] = sign * values.pop("gate_bias")
    if layout.normalization is not None:
        values["beta"] = values.pop("bias")
    return values


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "none"
