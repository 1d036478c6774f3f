"""The transform gate: its initial bias, its dtype, and the checks on its activation."""

import inspect
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from keras import initializers, ops

from highway_keras.layers.arguments import positive_integer
from highway_keras.layers.equations import gate_slope

STEEPEST_AUTO_BIAS = -10.0
RANGE_PROBES = (-1e4, -30.0, -3.0, -1.0, -0.1, 0.0, 0.1, 1.0, 3.0, 30.0, 1e4)
# Probe values, and a permutation that gives each of them new neighbours in its row, column and group.
ELEMENTWISE_PROBES = np.linspace(-3.0, 4.5, 16)
PERMUTATION = np.arange(16).reshape(4, 4).T.ravel()


def auto_transform_bias(depth: int) -> float:
    """Returns the initial transform gate bias for a net of `depth` layers.

    The paper's authors used -1, -2 and -3 for convolutional nets of about 10, 20 and 30 layers (arXiv 1507.06228,
    section 2.2 and their code), which is `-depth / 10`. The source is silent on other depths. Assumed here: the line
    continues beyond 30 layers, stops at -10 (the lowest bias of the paper's search, section 3.1), and nets of fewer
    than 10 layers start at -1.

    Args:
        depth: number of layers of the whole net, at least 1.

    Returns:
        The bias, between -10 and -1.

    Raises:
        ValueError: if `depth` is not a positive integer.

    Example:
        >>> auto_transform_bias(30)
        -3.0
    """
    depth = positive_integer("depth", depth, "the number of layers of the net")
    return float(max(STEEPEST_AUTO_BIAS, min(-1.0, -depth / 10)))


def bias_initializer(transform_bias: Any, depth: int | None) -> Any:
    """Resolves a layer's arguments `transform_bias` and `depth` to an initializer.

    Args:
        transform_bias: a finite number, "auto", or an initializer or its config.
        depth: number of layers of the net; read for "auto" only.

    Returns:
        A Keras initializer, or the given function of shape and dtype.

    Raises:
        ValueError: if `transform_bias` is none of these, or "auto" without a depth.

    Example:
        >>> bias_initializer("auto", depth=20).value
        -2.0
    """
    if is_initializer(transform_bias):
        return initializers.get(transform_bias)
    return initializers.Constant(_initial_bias(transform_bias, depth))


def is_initializer(transform_bias: Any) -> bool:
    """Tests whether a layer's argument `transform_bias` is an initializer or its config."""
    return callable(transform_bias) or isinstance(transform_bias, Mapping)


def known_bias(initializer: Any) -> float:
    """Returns the number that an initializer gives to every weight, or NaN if there is no such number.

    Example:
        >>> known_bias(initializers.Ones()), known_bias(initializers.RandomNormal())
        (1.0, nan)
    """
    values = {initializers.Zeros: 0.0, initializers.Ones: 1.0, initializers.Constant: getattr(initializer, "value", 0)}
    value = values.get(type(initializer), np.nan)
    return float(value) if np.ndim(value) == 0 else np.nan


def _initial_bias(transform_bias: Any, depth: int | None) -> float:
    if isinstance(transform_bias, str) and transform_bias == "auto":
        if depth is None:
            raise ValueError(
                "`transform_bias='auto'` derives the bias from the number of layers of the net: pass it as `depth`. "
                "Received: depth=None"
            )
        return auto_transform_bias(depth)
    numbers = (int, float, np.integer, np.floating)
    if isinstance(transform_bias, bool) or not isinstance(transform_bias, numbers) or not np.isfinite(transform_bias):
        raise ValueError(
            "`transform_bias` must be a finite number, 'auto' or an initializer. "
            f"Received: transform_bias={transform_bias!r}"
        )
    return float(transform_bias)


def gate_dtype(compute_dtype: str) -> str:
    """Returns the dtype of gate and blend: float32, or float64 if the layer computes in float64."""
    return "float64" if compute_dtype == "float64" else "float32"


def is_elementwise(function: Callable[[Any], Any], dtype: str) -> bool:
    """Tests on two permutations of `[2, 8]` numbers whether a function acts on each element alone.

    Args:
        function: function of a tensor; its exceptions propagate.
        dtype: dtype of the numbers.

    Returns:
        False for a function that mixes elements, such as softmax, depends on their positions, or is random.
    """
    orders = ELEMENTWISE_PROBES, ELEMENTWISE_PROBES[PERMUTATION]
    first, second = (_evaluate(function, numbers.reshape(2, 8), dtype) for numbers in orders)
    return first.shape == second.shape == (2, 8) and np.allclose(np.ravel(first)[PERMUTATION], np.ravel(second))


def check_gate(activation: Callable[[Any], Any], biases: dict[str, float], compute_dtype: str) -> None:
    """Rejects activations that cannot be gates, and warns about gates that cannot learn.

    A gate is dead when its slope T * (1 - T) at the initial bias rounds to 0 in the layer's compute dtype: no gradient
    ever reaches its kernel. In float16 this happens below about -16.6, for example at a bias of -20.

    Args:
        activation: activation of the gates.
        biases: initial bias of each gate by name ("transform_bias", "carry_bias"); NaN for one that is drawn when the
            layer is built, which is not checked, because a draw here would advance a seed generator.
        compute_dtype: compute dtype of the layer.

    Raises:
        ValueError: if the activation mixes elements, as softmax does, or leaves [0, 1], as ReLU and tanh do.

    Warns:
        UserWarning: if a gate is dead; names the bias, the dtype and the remedy.
    """
    dtype = gate_dtype(compute_dtype)
    elementwise = is_elementwise(activation, dtype)
    if not elementwise or not _is_in_range(_evaluate(activation, RANGE_PROBES, dtype)):
        fault = "leaves that range" if elementwise else "mixes the elements of its input"
        raise ValueError(
            "`gate_activation` must be elementwise with values in [0, 1], such as 'sigmoid' and 'hard_sigmoid'; this "
            f"one {fault}. Received: gate_activation={activation}"
        )
    initial_gates = _evaluate(activation, list(biases.values()), dtype)
    for (name, bias), gate in zip(biases.items(), initial_gates, strict=True):
        if np.isnan(bias):
            continue
        # bfloat16 has the exponent range of float32, so a slope is 0 in both or in neither.
        if gate_slope(gate).astype("float16" if compute_dtype == "float16" else dtype) == 0:
            warnings.warn(
                f"The gate with the initial {name} {bias:g} is dead in {compute_dtype}: its slope T * (1 - T) rounds "
                "to 0, so it cannot learn. Choose a bias closer to 0, or a wider dtype for this layer "
                "(dtype='mixed_bfloat16' or 'float32').",
                UserWarning,
                stacklevel=_outside_level(),
            )


def _outside_level() -> int:
    """Returns the `stacklevel` at which a warning of the caller names the first line outside of this package."""
    level, frame = 0, inspect.currentframe()
    while frame and frame.f_globals.get("__name__", "").startswith("highway_keras."):
        level, frame = level + 1, frame.f_back
    return level


def _is_in_range(values: np.ndarray) -> bool:
    return bool(np.all((values >= 0) & (values <= 1)))


def _evaluate(function: Callable[[Any], Any], numbers: Any, dtype: str) -> np.ndarray:
    # A separate thread computes eagerly even if the layer is created while another one is being traced: traces, graphs
    # and Keras's scopes are thread-local.
    result: list[np.ndarray | Exception] = []

    def work() -> None:
        try:
            result.append(ops.convert_to_numpy(function(ops.convert_to_tensor(numbers, dtype=dtype))))
        except Exception as error:
            result.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if isinstance(result[0], Exception):
        raise result[0]
    return result[0]
