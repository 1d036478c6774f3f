"""Loading of weights from other systems into built layers."""

import os
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
from keras import ops

from highway_keras.layers import HighwayStack
from highway_keras.layers.affine import AffineHighway
from highway_keras.weights.files import arrays_of, to_numpy
from highway_keras.weights.layouts import LAYOUTS, WeightLayout
from highway_keras.weights.reading import Values, dense_values, layer_values

dtype_of = keras.backend.standardize_dtype
Assignment = tuple[Any, np.ndarray]
"""A variable, and its new value."""


def load(
    target: Any,
    source: Mapping[str, Any] | str | os.PathLike[str],
    *,
    layout: str | WeightLayout,
    prefix: str = "",
    inputs: Any = None,
    outputs: Any = None,
    tolerance: float = 1e-5,
    fold_epsilon: bool = False,
) -> None:
    """Loads weights of highway layers that were trained in another system.

    Names, shapes and arguments are compared before anything is assigned: `target` receives all weights, or stays as it
    is. Shapes do not reveal everything: a dense kernel is square, so a forgotten transpose or a gate of opposite sign
    loads without an error. Pass `inputs` and the `outputs` of the other system to have the results compared.

    Args:
        target: a built `Highway`, `ConvHighway` or `HighwayStack`; a list of them in order; or a model, whose highway
            layers are taken in order. A stack takes `depth` layers.
        source: path of a `.safetensors`, `.pt`, `.pth` or `.bin` (PyTorch state dict), `.h5`, `.hdf5` or `.npz` file;
            or a mapping from names to arrays. PyTorch files are read with `weights_only=True`.
        layout: name of a layout in `highway_keras.weights.LAYOUTS`, or a `WeightLayout`.
        prefix: start of the names in `source`, such as "encoder.highway."; `{n}` in it stands for the number of the
            layer, as in "blocks.{n}.".
        inputs: inputs of `target`, in its data format.
        outputs: outputs of the other system for `inputs`, in inference mode.
        tolerance: largest absolute difference of the outputs.
        fold_epsilon: whether to absorb another epsilon of batch normalization into its scale. Inference is then exact,
            whereas further training uses the epsilon and momentum of `target`.

    Raises:
        ValueError: if `target` is not built, has arguments that the layout lacks, or does not fit the names and shapes
            in `source`; if the outputs differ. `target` is then unchanged.
        ImportError: if the package that reads the file is not installed.

    Example:
        stack = highway_keras.HighwayStack(2)
        stack.build((None, 512))
        weights.load(stack, "encoder.safetensors", layout="allennlp", prefix="encoder.highway.", inputs=x, outputs=y)
    """
    if (inputs is None) != (outputs is None):
        raise ValueError("`inputs` and `outputs` are compared together: pass both, or neither.")
    if isinstance(layout, str) and layout not in LAYOUTS:
        raise ValueError(
            f"`layout` must be one of {', '.join(LAYOUTS)}, or a `WeightLayout`. Received: layout={layout!r}"
        )
    layout = LAYOUTS[layout] if isinstance(layout, str) else layout
    layers = _flat(target)
    highways = [layer for layer in layers if isinstance(layer, AffineHighway)]
    if not highways:
        raise ValueError(f"`target` has no highway layer. Received: target={target}")
    for layer in highways:
        _check(layer, layout, fold_epsilon)
    arrays = arrays_of(source)
    assignments = _assignments(highways, layer_values(arrays, layout, prefix), layout)
    dense = [layer for layer in layers if isinstance(layer, keras.layers.Dense)]
    if layout.dense and dense:
        assignments += _dense_assignments(dense, dense_values(arrays, layout, prefix), layout)
    _check_shapes(assignments)
    previous = [(variable, ops.convert_to_numpy(variable)) for variable, _ in assignments]
    try:
        _assign(assignments)
        if inputs is not None:
            _compare(target, assignments, inputs, to_numpy(outputs), tolerance)
    except BaseException:
        _assign(previous)
        raise


def _flat(target: Any) -> list[Any]:
    """Returns the layers of a target in order, each once."""
    if isinstance(target, keras.Model | list | tuple):
        found = [layer for part in getattr(target, "layers", target) for layer in _flat(part)]
        return list({id(layer): layer for layer in found}.values())
    return [target]


def _check(layer: AffineHighway, layout: WeightLayout, fold_epsilon: bool) -> None:
    """Refuses a layer that computes something other than the layout's."""
    if not layer.built:
        raise ValueError(f"'{layer.name}' has no weights yet: build it first, `layer.build((None, units))`.")
    normalized = layout.normalization is not None
    expected = {
        "carry_gate": (layer.carry_gate, "coupled"),
        "gate_activation": (layer.gate_activation, keras.activations.sigmoid),
        "batch_normalization": (layer.batch_normalization, normalized),
        "dropout": (layer.dropout, 0.0),
        "use_bias": (layer.use_bias, True),
        "lora_rank": (layer.lora_rank, None),
        "quantization_mode": (layer.quantization_mode, None),
    }
    if layout.activation is not None:
        expected["activation"] = (layer.activation, keras.activations.get(layout.activation))
    for name, (found, needed) in expected.items():
        if found != needed:
            raise ValueError(
                f"The layer of this layout ({layout.source}) has {name}={_named(needed)}. "
                f"Received: '{layer.name}' with {name}={_named(found)}"
            )
    if not normalized or fold_epsilon:
        return
    for name, needed in {"epsilon": layout.epsilon, "momentum": layout.momentum}.items():
        found = getattr(layer.normalization, name)
        if not np.isclose(found, needed, rtol=1e-6, atol=0):
            raise ValueError(
                f"The batch normalization of this layout has {name}={needed:g}. Pass `fold_epsilon=True`, which keeps "
                f"inference exact, or create the layer with `normalization_{name}={needed:g}`. "
                f"Received: '{layer.name}' with {name}={found:g}"
            )


def _named(value: Any) -> str:
    return getattr(value, "__name__", None) or str(value)


def _assignments(highways: list[AffineHighway], values: list[Values], layout: WeightLayout) -> list[Assignment]:
    depths = [layer.depth if isinstance(layer, HighwayStack) else 1 for layer in highways]
    if sum(depths) != len(values):
        raise ValueError(f"`source` has {len(values)} highway layers under this prefix, `target` has {sum(depths)}.")
    found, rest = [], iter(values)
    for layer, depth in zip(highways, depths, strict=True):
        rows = [_folded(next(rest), layer, layout) for _ in range(depth)]
        for name, variable in _variables(layer).items():
            arrays = [row[name] for row in rows]
            if isinstance(layer, HighwayStack):
                same = len({array.shape for array in arrays}) == 1
                found.append((variable, np.stack(arrays) if same else np.asarray(arrays, dtype=object)))
            else:
                found.append((variable, arrays[0]))
    return found


def _variables(layer: AffineHighway) -> dict[str, Any]:
    """Returns the variables of a layer, under the same names as the values."""
    gate = {"transform_kernel": layer.transform_kernel, "transform_bias": layer.transform_bias}
    if not layer.batch_normalization:
        return {"kernel": layer.kernel, "bias": layer.bias, **gate}
    names = ("gamma", "beta", "moving_mean", "moving_variance")
    return {"kernel": layer.kernel, **gate, **{name: getattr(layer.normalization, name) for name in names}}


def _folded(values: Values, layer: AffineHighway, layout: WeightLayout) -> Values:
    """Scales gamma so that the layer's epsilon gives the same result as the layout's."""
    if not layer.batch_normalization:
        return values
    variance = values["moving_variance"].astype("float64")
    scale = np.sqrt((variance + layer.normalization.epsilon) / (variance + layout.epsilon))
    return {**values, "gamma": values["gamma"] * scale}


def _dense_assignments(dense: list[Any], values: list[Values], layout: WeightLayout) -> list[Assignment]:
    if len(dense) != len(layout.dense):
        raise ValueError(f"This layout has {len(layout.dense)} dense layers, `target` has {len(dense)}.")
    for layer, (name, activation) in zip(dense, layout.dense, strict=True):
        if layer.activation != keras.activations.get(activation) or not layer.use_bias or not layer.built:
            raise ValueError(
                f"'{name}' is a built dense layer with a bias and activation={activation}. "
                f"Received: '{layer.name}' with activation={_named(layer.activation)}, use_bias={layer.use_bias}, "
                f"built={layer.built}"
            )
    return [(getattr(layer, name), row[name]) for layer, row in zip(dense, values, strict=True) for name in row]


def _check_shapes(assignments: list[Assignment]) -> None:
    wrong = [
        f"{variable.path}: {tuple(value.shape)} in `source`, {tuple(variable.shape)} in `target`"
        for variable, value in assignments
        if tuple(value.shape) != tuple(variable.shape) or value.dtype == object
    ]
    if wrong:
        raise ValueError("The shapes differ; nothing was loaded. " + "; ".join(wrong))


def _assign(assignments: list[Assignment]) -> None:
    for variable, value in assignments:
        variable.assign(value)


def _compare(target: Any, assignments: list[Assignment], inputs: Any, outputs: np.ndarray, tolerance: float) -> None:
    """Compares the outputs; if they differ, looks for a usual error that explains it."""
    difference = _difference(target, inputs, outputs)
    if difference <= tolerance:
        return
    explained = "Check the layout, the activation, and that the other system ran in inference."
    for error, changed in _usual_errors(assignments).items():
        _assign(changed)
        if _difference(target, inputs, outputs) <= tolerance:
            explained = f"They would agree {error}: the layout is another one."
            break
    raise ValueError(
        f"The outputs differ by up to {difference:.3g}, more than tolerance={tolerance:g}; the previous weights were "
        f"restored. {explained}"
    )


def _difference(target: Any, inputs: Any, outputs: np.ndarray) -> float:
    found = inputs
    for layer in target if isinstance(target, list | tuple) else [target]:
        found = layer(found, training=False)
    found = ops.convert_to_numpy(ops.cast(found, "float64" if dtype_of(found.dtype) == "float64" else "float32"))
    if found.shape != outputs.shape:
        raise ValueError(f"`outputs` must have the shape {found.shape}. Received: {outputs.shape}")
    # An empty batch compares nothing; a NaN is within no tolerance.
    return float(np.max(np.abs(found - outputs))) if found.size else float("nan")


def _usual_errors(assignments: list[Assignment]) -> dict[str, list[Assignment]]:
    def transposed(pair: Assignment) -> Assignment:
        variable, value = pair
        return variable, np.swapaxes(value, -1, -2) if "kernel" in variable.name else value

    def flipped(pair: Assignment) -> Assignment:
        variable, value = pair
        return variable, -value if variable.name.startswith("transform_") else value

    highway = [pair for pair in assignments if pair[1].shape]
    return {
        "with transposed kernels": [transposed(pair) if _is_square(pair) else pair for pair in highway],
        "with the gate's sign flipped": [flipped(pair) for pair in highway],
        "with transposed kernels and the gate's sign flipped": [
            flipped(transposed(pair) if _is_square(pair) else pair) for pair in highway
        ],
    }


def _is_square(pair: Assignment) -> bool:
    return pair[1].ndim > 1 and pair[1].shape[-1] == pair[1].shape[-2]
