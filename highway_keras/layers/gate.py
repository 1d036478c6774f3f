"""The gate: which values it may take, in which dtype, and where it starts."""

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from keras import ops

STEEPEST_AUTO_BIAS = -10.0
RANGE_PROBES = (-1e4, -30.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 30.0, 1e4)
# Numbers in two orders, in which they have other neighbours in their row, their column and any group.
COMPANY_PROBES = np.linspace(-3.0, 4.5, 16)
COMPANY_ORDER = np.arange(16).reshape(4, 4).T.ravel()


def auto_transform_bias(depth: int) -> float:
    """The initial bias of the transform gate that suits a net of `depth` layers.

    The paper's authors recorded -1, -2 and -3 for convolutional nets of about 10, 20 and 30 layers (arXiv 1507.06228,
    section 2.2 and their code), which is `-depth / 10`. Assumed, because the source is silent: that the line goes on
    beyond 30 layers, that it ends at -10 (the lowest bias of the paper's search, section 3.1), and that nets of fewer
    than 10 layers start at -1.

    Args:
        depth: number of layers of the whole net, 1 or more.

    Returns:
        The bias, between -10 and -1.

    Raises:
        ValueError: if `depth` is not a positive integer.

    Example:
        >>> auto_transform_bias(30)
        -3.0
    """
    if not isinstance(depth, int) or isinstance(depth, bool) or depth < 1:
        raise ValueError(
            f"`depth` must be a positive integer, the number of layers of the net. Received: depth={depth}"
        )
    return float(max(STEEPEST_AUTO_BIAS, min(-1.0, -depth / 10)))


def resolve_transform_bias(transform_bias: float | str, depth: int | None) -> float:
    """The number that a layer's arguments `transform_bias` and `depth` stand for.

    Args:
        transform_bias: a finite number, or "auto".
        depth: number of layers of the net; needed for "auto", not read otherwise.

    Returns:
        The initial bias.

    Raises:
        ValueError: if `transform_bias` is neither, or is "auto" without a depth.

    Example:
        >>> resolve_transform_bias("auto", depth=20)
        -2.0
    """
    if transform_bias == "auto":
        if depth is None:
            raise ValueError(
                "`transform_bias='auto'` takes the bias from the number of layers of the net: pass it as `depth`. "
                "Received: depth=None"
            )
        return auto_transform_bias(depth)
    numbers = (int, float, np.integer, np.floating)
    if isinstance(transform_bias, bool) or not isinstance(transform_bias, numbers) or not np.isfinite(transform_bias):
        raise ValueError(
            f"`transform_bias` must be a finite number or 'auto'. Received: transform_bias={transform_bias!r}"
        )
    return float(transform_bias)


def gate_dtype(compute_dtype: str) -> str:
    """The dtype of gate and blend: float32, or wider where the layer computes wider; never narrower."""
    return "float64" if compute_dtype == "float64" else "float32"


def is_elementwise(function: Callable[[Any], Any], dtype: str) -> bool:
    """Whether a function gives each element the same value in any company, tried on `[2, 8]` numbers in two orders.

    Args:
        function: of a tensor; what it raises is not caught.
        dtype: of the numbers.

    Returns:
        False for a function that mixes elements, as softmax does, that depends on their places, or that is random.
    """
    first, second = (
        _evaluate(function, numbers.reshape(2, 8), dtype) for numbers in (COMPANY_PROBES, COMPANY_PROBES[COMPANY_ORDER])
    )
    return first.shape == second.shape == (2, 8) and np.allclose(np.ravel(first)[COMPANY_ORDER], np.ravel(second))


def check_gate(activation: Callable[[Any], Any], biases: dict[str, float], compute_dtype: str) -> None:
    """Refuses what cannot be a gate, and warns where a gate cannot learn.

    A gate is dead when its slope T * (1 - T) at the initial bias, rounded to the dtype in which the layer computes, is
    0: no gradient ever reaches the gate's kernel. In float16 that is so below about -16.6, as for the -20 that suits
    1 000 layers.

    Args:
        activation: function of the gate.
        biases: initial bias of each gate by name ("transform_bias", "carry_bias").
        compute_dtype: the dtype of the layer's products.

    Raises:
        ValueError: if the activation mixes elements, as softmax does, or leaves [0, 1], as ReLU and tanh do.

    Warns:
        UserWarning: naming bias, dtype and what to do, if a gate is dead.
    """
    dtype = gate_dtype(compute_dtype)
    elementwise = is_elementwise(activation, dtype)
    if not elementwise or not _is_in_range(_evaluate(activation, RANGE_PROBES, dtype)):
        fault = "leaves that range" if elementwise else "mixes the elements of its input"
        raise ValueError(
            "`gate_activation` must act on each element alone and give values in [0, 1], as 'sigmoid' and "
            f"'hard_sigmoid' do; this one {fault}. Received: gate_activation={activation}"
        )
    opened = _evaluate(activation, list(biases.values()), dtype)
    for (name, bias), gate in zip(biases.items(), opened, strict=True):
        # bfloat16 has the exponents of float32: what is not 0 in one is not 0 in the other.
        if (gate * (1 - gate)).astype("float16" if compute_dtype == "float16" else dtype) == 0:
            warnings.warn(
                f"The gate with the initial {name} {bias:g} is dead in {compute_dtype}: its slope T * (1 - T) rounds "
                "to 0, so that it cannot learn. Choose a bias nearer to 0, or a wider dtype for this layer "
                "(dtype='mixed_bfloat16' or 'float32').",
                UserWarning,
                stacklevel=3,
            )


def _is_in_range(values: np.ndarray) -> bool:
    return bool(np.all((values >= 0) & (values <= 1)))


def _evaluate(function: Callable[[Any], Any], numbers: Any, dtype: str) -> np.ndarray:
    # In a thread of its own, because it must be computed now, even where a layer is made while another is traced:
    # traces, graphs and Keras's scopes belong to threads.
    found: list[np.ndarray | Exception] = []

    def work() -> None:
        try:
            found.append(ops.convert_to_numpy(function(ops.convert_to_tensor(numbers, dtype=dtype))))
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(found[0], Exception):
        raise found[0]
    return found[0]
