"""Gradient flow: gradient norms by layer, and the parts of a highway layer's Jacobian."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from highway_keras.analysis.batches import count_of
from highway_keras.analysis.compiling import leaf_layers
from highway_keras.analysis.layout import trace
from highway_keras.analysis.scorer import Scorer, ScoreSpec, scorer
from highway_keras.analysis.scores import example_sums, output_mask
from highway_keras.layers import Highway, HighwayStack
from highway_keras.layers.equations import DERIVATIVES, partials
from highway_keras.layers.recording import call_name, layer_names


def gradient_norms(model: keras.Model, x: Any, y: Any, scores: ScoreSpec = None) -> dict[str, dict[str, float]]:
    """Computes the norm of the gradient of the mean loss for each trainable weight of each layer.

    Runs in inference mode, without dropout and weight penalties, so that nets of all kinds can be compared at any point
    in training.

    Args:
        model: any built Keras model.
        x: inputs of the model.
        y: labels, or targets as `scores` expects them.
        scores: provides the "loss" of each example; see `lesion_layers`. Masked steps of token outputs do not count.

    Returns:
        The Euclidean norm of each gradient by layer name and then weight name ("kernel", "transform_bias"), in the
        order of the model's layers; the layers of a stack appear one by one. Weights of layers inside a layer, such as
        the block of a `HighwayConnection`, have their path ("block/dense/kernel"). Repeated names get the suffixes
        ":2", ":3" and so on.

    Raises:
        ValueError: if `x` is empty, every example is masked or ignored, labels do not fit the outputs, or it is
            ambiguous whether the outputs are logits or probabilities.

    Example:
        for layer, norms in gradient_norms(model, images, labels).items():
            print(layer, norms["kernel"])
    """
    if not count_of((x, y)):
        raise ValueError("There is nothing to measure: x contains no examples.")
    chosen = scorer(model, trace(model, x)[1], scores)
    values, count = _gradients(model, x, chosen.labels(y), chosen)
    if not ops.convert_to_numpy(count):
        raise ValueError("There is nothing to measure: every example is masked or ignored.")
    gradients = {
        id(variable): ops.convert_to_numpy(value)
        for variable, value in zip(model.trainable_variables, values, strict=True)
    }
    norms: dict[str, dict[str, float]] = {}
    taken: set[str] = set()
    for layer in dict.fromkeys(leaf_layers(model)):
        stacked = isinstance(layer, HighwayStack)
        name = call_name(layer.name, taken, layer.depth if stacked else None)
        rows = layer_names(name, layer.depth) if stacked else [name]
        for variable in layer.trainable_variables:
            gradient = gradients[id(variable)].astype("float64")
            for row, values in zip(rows, gradient if stacked else [gradient], strict=True):
                weights = norms.setdefault(row, {})
                weights[call_name(_name_within(layer, variable), {*weights})] = float(np.sqrt(np.square(values).sum()))
    return norms


class Jacobian(NamedTuple):
    """The three parts of a highway layer's Jacobian dy/dx, `[examples, outputs, inputs]` each."""

    identity: np.ndarray
    """1 - T on the diagonal: the carry path."""
    transform: np.ndarray
    """T * dH/dx: the path through the block state."""
    gate: np.ndarray
    """(H - x) * dT/dx: the path through the gate."""

    @property
    def rest(self) -> np.ndarray:
        """The sum of the parts through the block state and through the gate."""
        return self.transform + self.gate


def jacobian(layer: Highway, x: np.ndarray) -> Jacobian:
    """Computes the Jacobian of a dense highway layer in parts.

    Differentiating y = T * H + (1 - T) * x gives dy/dx = diag(1 - T) + diag(T) dH/dx + diag(H - x) dT/dx. With closed
    gates only the identity remains, whatever the number of layers.

    Args:
        layer: a built layer; for a stack, a layer of `highway_keras.surgery.unstacked(model)`.
        x: inputs of the layer, `[examples, units]`.

    Returns:
        The three parts, in float64.

    Raises:
        ValueError: if the layer is not dense, its carry gate is separate, it has batch normalization or dropout, the
            derivative of an activation is not known from its output, or the layer is not built.

    Example:
        parts = jacobian(model.get_layer("highway_03"), inputs)
        numpy.linalg.norm(parts.rest, ord=2, axis=(1, 2))  # deviation from the identity, per example

    Reference:
        arXiv 1507.06228, section 2, equations 3 to 5.
    """
    known = layer.activation in DERIVATIVES and layer.gate_activation in DERIVATIVES
    if (
        type(layer) is not Highway
        or (layer.carry_gate, layer.batch_normalization, layer.dropout) != ("coupled", False, 0.0)
        or not known
    ):
        raise ValueError(
            "The Jacobian is known for a `Highway` layer with a coupled carry gate, without batch normalization and "
            f"dropout, whose activations have derivatives known from their outputs. Received: {layer}"
        )
    if not layer.built:
        raise ValueError(f"'{layer.name}' has no weights yet: build it first, `layer.build((None, units))`.")
    x = np.asarray(x, "float64")
    paths = []
    for kernel, bias, activation in (
        (layer.kernel, layer.bias, layer.activation),
        (layer.transform_kernel, layer.transform_bias, layer.gate_activation),
    ):
        weights = ops.convert_to_numpy(kernel).astype("float64")
        sums = x @ weights + (0.0 if bias is None else ops.convert_to_numpy(bias))
        output = activation(ops.convert_to_tensor(sums, dtype="float32"))
        slope = ops.convert_to_numpy(DERIVATIVES[activation](output)).astype("float64")
        paths.append((ops.convert_to_numpy(output).astype("float64"), slope[:, :, None] * weights.T))
    (block, block_slope), (transform, gate_slope) = paths
    local = partials(block, x, transform)
    return Jacobian(
        identity=local.inputs[:, :, None] * np.eye(x.shape[1]),
        transform=local.block[:, :, None] * block_slope,
        gate=local.transform[:, :, None] * gate_slope,
    )


def _name_within(layer: keras.layers.Layer, variable: Any) -> str:
    """Returns the path of a weight below its layer."""
    *_, path = f"/{variable.path}".split(f"/{layer.name}/", 1)
    return path.removeprefix("/")


def _mean_loss(y: Any, outputs: Any, chosen: Scorer) -> tuple[Any, Any]:
    """Returns the mean loss, and the number of examples, or steps, that count in it; without any, the mean is NaN."""
    loss, mask = ops.cast(chosen.scores(y, outputs)["loss"], "float32"), output_mask(outputs)
    count = ops.sum(example_sums(chosen.counted(y, loss), mask))
    return ops.sum(example_sums(loss, mask)) / count, count


def _gradients(model: keras.Model, x: Any, y: Any, chosen: Scorer) -> tuple[list[Any], Any]:
    """Returns the gradients of the mean loss with respect to the trainable variables, and the number behind it."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(autograph=False)
        def gradients(x: Any, y: Any) -> tuple[list[Any], Any]:
            with tf.GradientTape() as tape:
                loss, count = _mean_loss(y, model(x, training=False), chosen)
            variables = [variable.value for variable in model.trainable_variables]
            values = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            # An embedding's gradient is sparse.
            return [tf.convert_to_tensor(gradient) for gradient in values], count

        return gradients(x, y)
    if keras.backend.backend() == "torch":
        import torch

        variables = [variable.value for variable in model.trainable_variables]
        y = keras.tree.map_structure(ops.convert_to_tensor, y)
        with torch.enable_grad():
            total, count = _mean_loss(y, model(x, training=False), chosen)
        return list(torch.autograd.grad(total, variables, allow_unused=True, materialize_grads=True)), count
    import jax

    def loss(values: list[Any], x: Any, y: Any) -> tuple[Any, Any]:
        with keras.StatelessScope(state_mapping=list(zip(model.trainable_variables, values, strict=True))):
            outputs = model(x, training=False)
        return _mean_loss(y, outputs, chosen)

    return jax.jit(jax.grad(loss, has_aux=True))([variable.value for variable in model.trainable_variables], x, y)
