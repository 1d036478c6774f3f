"""How gradients get through a dense net while it is trained: measured on a few training images after each epoch.

Blocks are counted from 1 at the input. By block, of every net:

    kernel/BLOCK     norm of the gradient of the mean loss with respect to the kernel of H
    gate/BLOCK       the same of the kernel of T

and of a highway net, whose block has the Jacobian dy/dx = diag(1 - T) + the rest:

    identity/BLOCK   mean of 1 - T, which the formula puts on the diagonal
    diagonal/BLOCK   mean of the diagonal of dy/dx as it was measured, by differences
    rest/BLOCK       what the rest does to a gradient of random direction: root mean square factor on its length
    gain/BLOCK       the same of dy/dx of this block and all after it, multiplied
    path/BLOCK       the same of diag(1 - T) alone
    error            between the Jacobian of the formula and the measured one, at the worst block and image: norm of the
                     difference over the norm of the measured one
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipelines.run import Run
from pipelines.training.watch import Watch

if TYPE_CHECKING:
    import keras

    from highway_keras import Highway
    from highway_keras.analysis.gradients import Jacobian

EXAMPLES = 256
"""Training images for the gradient of the loss."""
FEW = 16
"""Training images for Jacobians."""
STEP = 0.01
"""Of the differences: in float32 a smaller one loses more to rounding than it gains."""
ENDS = ("entry", "logits")
"""The layers around the blocks."""


def watched(run: Run, data_dir: Path | None) -> Watch:
    """What is measured before training and after each epoch.

    Args:
        run: of a dense classifier.
        data_dir: where prepared data lies; None for the default of TFDS.

    Returns:
        Gives the columns that stand above.
    """
    # Studies are listed without a framework.
    from pipelines.data import batches, preprocess, sources

    config = run.config
    examples = sources.load(config.data, "train", data_dir, config.validation, config.subset)
    fitted = preprocess.load(run.path / "preprocess.npz")
    classes = len(run.record.data.labels)
    x, y = next(iter(batches.evaluation(examples, fitted, batch_size=EXAMPLES, classes=classes)))
    x, y = x.numpy(), y.numpy()

    def measure(net: "keras.Model") -> dict[str, float]:
        return {**norms(net, x, y), **(jacobians(net, x[:FEW]) if run.record.gates else {})}

    return Watch({epoch * run.record.steps_per_epoch for epoch in range(config.epochs + 1)}, measure)


def norms(net: "keras.Model", x: np.ndarray, y: np.ndarray) -> dict[str, float]:
    """The norm of the gradient by block.

    Args:
        net: a dense net.
        x: images, as the net takes them.
        y: their classes, one-hot.

    Returns:
        The columns "kernel/BLOCK", and of a highway net "gate/BLOCK".
    """
    from highway_keras.analysis.gradients import gradient_norms

    found = [weights for layer, weights in gradient_norms(net, x, y).items() if layer not in ENDS]
    kernels = {f"kernel/{block}": weights["kernel"] for block, weights in enumerate(found, 1)}
    gates = {f"gate/{block}": weights.get("transform_kernel") for block, weights in enumerate(found, 1)}
    return kernels | {name: norm for name, norm in gates.items() if norm is not None}


def jacobians(net: "keras.Model", x: np.ndarray) -> dict[str, float]:
    """The Jacobians of the blocks of a highway net, by the formula and as measured.

    Args:
        net: a dense highway net with one stack, "highway".
        x: images, as the net takes them.

    Returns:
        The columns from "identity/BLOCK" on.
    """
    blocks = list(_blocks(net, x))
    columns: dict[str, float] = {}
    for number, (parts, measured) in enumerate(blocks, 1):
        columns[f"identity/{number}"] = float(_diagonal(parts.identity).mean())
        columns[f"diagonal/{number}"] = float(_diagonal(measured).mean())
        columns[f"rest/{number}"] = factor(parts.rest)
    whole = path = np.eye(blocks[0][1].shape[-1])
    for number, (parts, measured) in reversed(list(enumerate(blocks, 1))):
        whole, path = whole @ measured, path @ parts.identity
        columns[f"gain/{number}"], columns[f"path/{number}"] = factor(whole), factor(path)
    return columns | {"error": max(_error(parts, measured) for parts, measured in blocks)}


def _blocks(net: "keras.Model", x: np.ndarray) -> Iterator[tuple["Jacobian", np.ndarray]]:
    """Of each block its Jacobian in parts by the formula, and as measured: `[images, outputs, inputs]`."""
    import keras

    from highway_keras.analysis.gradients import jacobian
    from highway_keras.surgery.stacking import layers_of

    stack = net.get_layer("highway")
    state = np.asarray(keras.Model(net.input, stack.input).predict(x, verbose=0))
    for block in layers_of(stack):
        yield jacobian(block, state), differences(block, state)
        state = _called(block, state)


def differences(block: "Highway", x: np.ndarray) -> np.ndarray:
    """The Jacobian of a block by central differences.

    Args:
        block: built; dense.
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
    """What a Jacobian does to the length of a gradient of random direction: root mean square, over examples too.

    Args:
        jacobian: `[..., outputs, inputs]`.
    """
    return float(np.sqrt(np.square(jacobian).sum(axis=(-2, -1)).mean() / jacobian.shape[-1]))


def _called(block: "Highway", x: np.ndarray) -> np.ndarray:
    from keras import ops

    return np.asarray(ops.convert_to_numpy(block(x.astype("float32"))))


def _diagonal(jacobian: np.ndarray) -> np.ndarray:
    return np.diagonal(jacobian, axis1=-2, axis2=-1)


def _error(parts: "Jacobian", measured: np.ndarray) -> Any:
    formula = parts.identity + parts.rest
    axes = (-2, -1)
    return float((np.linalg.norm(formula - measured, axis=axes) / np.linalg.norm(measured, axis=axes)).max())
