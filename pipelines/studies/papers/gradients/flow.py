"""Gradient flow through a dense net, measured on a few training images after each epoch.

Blocks are counted from 1 at the input. Columns for every net:

    kernel/BLOCK     norm of the gradient of the mean loss with respect to the kernel of H
    gain/BLOCK       factor by which this block and all later ones scale a gradient of random direction: root mean
                     square factor of the product of their Jacobians dy/dx

Further columns for a highway net, whose blocks have the Jacobian diag(1 - T) + the rest:

    gate/BLOCK       norm of the gradient with respect to the kernel of T
    identity/BLOCK   mean of 1 - T, which the formula puts on the diagonal
    diagonal/BLOCK   mean of the diagonal of the Jacobian, measured by finite differences
    rest/BLOCK       factor of the rest alone
    path/BLOCK       factor of the product of diag(1 - T) over this block and all later ones
    error            relative error of the formula at the worst block and image: norm of the difference between the
                     Jacobian by the formula and the measured one, over the norm of the measured one

The norm of a kernel's gradient alone does not show how far gradients reach: it is the product of the norms of the
block's input and of the gradient at its output, and stays constant where one shrinks as the other grows.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.core.run import Run
from pipelines.training.probe import Probe

if TYPE_CHECKING:
    import keras

    from highway_keras.analysis.gradients import Jacobian

EXAMPLES = 256
"""Training images for the gradient of the loss."""
FEW = 16
"""Training images for Jacobians."""
STEP = 0.01
"""Step of the finite differences: in float32, a smaller one loses more to rounding than it gains in accuracy."""
ENDS = ("entry", "logits")
"""The layers around the blocks."""


def probe(run: Run, data_dir: Path | None) -> Probe:
    """Probes a net before training and after each epoch.

    Args:
        run: run of a dense classifier.
        data_dir: folder of prepared data; None for the TFDS default.

    Returns:
        A probe with the columns above.
    """
    # Imported here, because studies are listed without a framework.
    from pipelines.data import batches, preprocess, sources

    config = run.config
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    classes = len(run.record.data.labels)
    x, y = next(iter(batches.evaluation(examples, fitted, batch_size=EXAMPLES, classes=classes)))
    x, y = x.numpy(), y.numpy()

    def measure(net: "keras.Model") -> dict[str, float]:
        return {**norms(net, x, y), **jacobians(net, x[:FEW])}

    return Probe({epoch * run.record.steps_per_epoch for epoch in range(config.epochs + 1)}, measure)


def norms(net: "keras.Model", x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """Computes the norm of the gradient by block.

    Args:
        net: a dense net.
        x: preprocessed images.
        y: their classes, one-hot.

    Returns:
        The columns "kernel/BLOCK" and, for a highway net, "gate/BLOCK".
    """
    from highway_keras.analysis import classification
    from highway_keras.analysis.gradients import gradient_norms

    found = [weights for layer, weights in gradient_norms(net, x, y, classification).items() if layer not in ENDS]
    kernels = {f"kernel/{block}": weights["kernel"] for block, weights in enumerate(found, 1)}
    gates = {f"gate/{block}": weights.get("transform_kernel") for block, weights in enumerate(found, 1)}
    return kernels | {name: norm for name, norm in gates.items() if norm is not None}


def jacobians(net: "keras.Model", x: np.ndarray) -> dict[str, float]:
    """Computes how blocks scale gradients and, for a highway net, the formula next to the measured Jacobian.

    Args:
        net: a dense net with a stack "highway", or the plain or residual twin of such a net.
        x: preprocessed images.

    Returns:
        The columns "gain/BLOCK" and, for a highway net, those from "identity/BLOCK" on.
    """
    import keras

    from highway_keras import HighwayStack
    from highway_keras.analysis.gradients import jacobian
    from highway_keras.surgery.stacking import layers_of

    state = np.asarray(keras.Model(net.input, net.get_layer(ENDS[0]).output).predict(x, verbose=0))
    stack = next((layer for layer in net.layers if isinstance(layer, HighwayStack)), None)
    if stack is None:
        return _backwards("gain", _of_twin(net, state))
    formula, measured = [], []
    for block in layers_of(stack):
        formula.append(jacobian(block, state))
        measured.append(differences(block, state))
        state = _called(block, state)
    return _backwards("gain", [parts.identity + parts.rest for parts in formula]) | _against(formula, measured)


def _of_twin(net: "keras.Model", state: np.ndarray) -> list[np.ndarray]:
    """Returns the Jacobians of plain or residual blocks: diag(slope of H) W, plus the identity in residual ones."""
    import keras

    from highway_keras.layers.equations import DERIVATIVES

    carried = float(any(isinstance(layer, keras.layers.Add) for layer in net.layers))
    found = []
    for layer in net.layers:
        if isinstance(layer, keras.layers.Dense) and layer.name not in ENDS:
            block = _called(layer, state)
            slope = np.asarray(DERIVATIVES[layer.activation](block), "float64")
            kernel = np.asarray(keras.ops.convert_to_numpy(layer.kernel), "float64")
            found.append(carried * np.eye(len(kernel)) + slope[:, :, None] * kernel.T)
            state = block + carried * state
    return found


def _backwards(name: str, of_blocks: Sequence[np.ndarray]) -> dict[str, float]:
    """Returns the factor of each block together with all later ones, from their Jacobians."""
    columns, product = {}, np.eye(of_blocks[0].shape[-1])
    for number, of_block in reversed(list(enumerate(of_blocks, 1))):
        product = product @ of_block
        columns[f"{name}/{number}"] = factor(product)
    return columns


def _against(formula: "Sequence[Jacobian]", measured: Sequence[np.ndarray]) -> dict[str, float]:
    """Compares the Jacobians of highway blocks, as the formula gives them, with the measured ones."""
    columns: dict[str, float] = {}
    for number, (parts, whole) in enumerate(zip(formula, measured, strict=True), 1):
        columns[f"identity/{number}"] = float(_diagonal(parts.identity).mean())
        columns[f"diagonal/{number}"] = float(_diagonal(whole).mean())
        columns[f"rest/{number}"] = factor(parts.rest)
    columns |= _backwards("path", [parts.identity for parts in formula])
    return columns | {"error": max(_error(parts, whole) for parts, whole in zip(formula, measured, strict=True))}


def differences(block: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    """Measures the Jacobian of a block by central differences.

    Args:
        block: a block with as many outputs as inputs.
        x: its inputs, `[examples, units]`.

    Returns:
        float64 `[examples, outputs, inputs]`.
    """
    units = x.shape[1]
    moved = STEP * np.eye(units)
    above, below = (
        _called(block, (x[:, None] + sign * moved).reshape(-1, units)).reshape(len(x), units, units).astype("float64")
        for sign in (1, -1)
    )
    return ((above - below) / (2 * STEP)).swapaxes(1, 2)


def factor(jacobian: np.ndarray) -> float:
    """Factor by which a Jacobian scales a gradient of random direction: root mean square, also over examples.

    Args:
        jacobian: `[..., outputs, inputs]`.
    """
    return float(np.sqrt(np.square(jacobian).sum(axis=(-2, -1)).mean() / jacobian.shape[-1]))


def _called(block: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(block(x.astype("float32"))))


def _diagonal(jacobian: np.ndarray) -> np.ndarray:
    return np.diagonal(jacobian, axis1=-2, axis2=-1)


def _error(parts: "Jacobian", measured: np.ndarray) -> Any:
    formula = parts.identity + parts.rest
    axes = (-2, -1)
    return float((np.linalg.norm(formula - measured, axis=axes) / np.linalg.norm(measured, axis=axes)).max())
