"""Batch normalization folded into the kernels and biases before it."""

from typing import Any

import keras
import numpy as np

from highway_keras.layers.affine import AffineHighway
from highway_keras.layers.normalization import FusedBatchNormalization
from highway_keras.surgery.graph import graph_of, links, rewired

AFFINE = (keras.layers.Dense, keras.layers.Conv1D, keras.layers.Conv2D, keras.layers.Conv3D)
NORMALIZATIONS = (keras.layers.BatchNormalization, FusedBatchNormalization)


def folded(model: keras.Model) -> keras.Model:
    """Copies a model, folding the running statistics of batch normalization into kernels and biases.

    The copy has the same outputs in inference mode, up to rounding, with fewer operations. It folds `Highway` and
    `ConvHighway` with `batch_normalization=True`, and each `BatchNormalization` that is the only reader of a dense
    layer or a convolution without activation. Nested models are folded too; other normalizations stay as they are.

    Args:
        model: a functional or sequential model with weights.

    Returns:
        An uncompiled model with copies of the weights. Layers keep their names; the normalizations are gone.

    Raises:
        ValueError: if the model has no graph, or a layer to fold is quantized or has LoRA.

    Example:
        small = folded(from_preset("mnist_conv_32_modern"))

    Reference:
        Jacob et al. 2018, arXiv 1712.05877, section 3.2.
    """
    graph = graph_of(model)
    layers = {layer.name: layer for layer in graph.layers}
    rows: dict[str, list[Any]] = {
        name: [_folded_highway(layer)]
        for name, layer in layers.items()
        if isinstance(layer, AffineHighway) and layer.batch_normalization
    }
    for first, second in links(graph):
        if _folds(layers.get(first), layers.get(second)):
            rows |= {first: [_folded_affine(layers[first], layers[second])], second: []}
    return rewired(graph, rows, folded)


def _folds(layer: Any, normalization: Any) -> bool:
    if type(layer) not in AFFINE or type(normalization) not in NORMALIZATIONS:
        return False
    rank = len(layer.output.shape)
    channels = 1 if getattr(layer, "data_format", "channels_last") == "channels_first" else rank - 1
    return layer.activation is keras.activations.linear and normalization.axis % rank == channels


def _folded_highway(layer: Any) -> Any:
    _refuse_adapted(layer)
    copy = type(layer).from_config({**layer.get_config(), "batch_normalization": False, "use_bias": True})
    shape: list[int | None] = [None] * layer.input_spec.ndim
    shape[layer.unit_axis] = layer.kernel.shape[-1]
    copy.build(tuple(shape))
    kernel, bias = _scaled(layer.kernel, None, layer.normalization)
    copy.kernel.assign(kernel)
    copy.bias.assign(bias)
    gates = ("transform_kernel", "transform_bias")
    for name in (*gates, "carry_kernel", "carry_bias") if layer.carry_gate == "separate" else gates:
        getattr(copy, name).assign(getattr(layer, name))
    if isinstance(layer.activation, keras.layers.Layer):
        # Such as PReLU, with weights of its own.
        copy.activation.set_weights(layer.activation.get_weights())
    return copy


def _folded_affine(layer: Any, normalization: Any) -> Any:
    _refuse_adapted(layer)
    copy = type(layer).from_config({**layer.get_config(), "use_bias": True})
    copy.build(layer.input.shape)
    copy.set_weights(_scaled(layer.kernel, layer.bias, normalization))
    return copy


def _scaled(kernel: Any, bias: Any, normalization: Any) -> tuple[np.ndarray, np.ndarray]:
    """Returns kernel and bias whose output is the normalized output, computed in float64."""

    def array(variable: Any, default: float) -> Any:
        return default if variable is None else keras.ops.convert_to_numpy(variable).astype(np.float64)

    deviation = np.sqrt(array(normalization.moving_variance, 1.0) + normalization.epsilon)
    scale = array(normalization.gamma, 1.0) / deviation
    shift = array(normalization.beta, 0.0) + (array(bias, 0.0) - array(normalization.moving_mean, 0.0)) * scale
    return array(kernel, 0.0) * scale, shift


def _refuse_adapted(layer: Any) -> None:
    if layer.lora_enabled or layer.quantization_mode is not None:
        raise ValueError(
            "A layer that is quantized or has LoRA cannot be folded: fold the model first. "
            f"Received: layer '{layer.name}'"
        )
