"""How gradients get through a net: their norm by layer, and what a highway layer's Jacobian is made of."""

from typing import Any, NamedTuple

import keras
import numpy as np
from keras import ops

from highway_keras.analysis import averages
from highway_keras.analysis.batches import count_of
from highway_keras.analysis.compiling import leaves
from highway_keras.analysis.layout import traced
from highway_keras.analysis.scores import Scores
from highway_keras.analysis.scoring import Asked, scorer
from highway_keras.layers import Highway, HighwayStack
from highway_keras.layers.derivatives import DERIVATIVES
from highway_keras.layers.equations import partials
from highway_keras.layers.highway_stack import UNSTACKED
from highway_keras.layers.recording import layer_names


def gradient_norms(model: keras.Model, x: Any, y: Any, scores: Asked = None) -> dict[str, dict[str, float]]:
    """The norm of the gradient of the mean loss over some examples, for each trainable weight of each layer.

    In inference, without dropout and weight penalties, so that nets of all kinds can be compared at any time of their
    training.

    Args:
        model: any built Keras model.
        x: examples, as the model takes them.
        y: their labels, or what `scores` takes with the model's outputs.
        scores: has the "loss" of each example; see `lesion_layers`. Masked steps of token outputs do not count.

    Returns:
        Layer name to weight name ("kernel", "transform_bias") to the Euclidean norm of its gradient; layers in the
        order in which the model holds them, those of a stack one by one.

    Raises:
        ValueError: if there is no example, labels do not fit the outputs, or it cannot be told whether the outputs are
            logits or probabilities.

    Example:
        for layer, norms in gradient_norms(model, images, labels).items():
            print(layer, norms["kernel"])
    """
    if not count_of((x, y)):
        raise ValueError("There is nothing to measure: x holds no example.")
    suiting = scorer(model, traced(model, x)[1], scores)
    values = _gradients(model, x, suiting.labels(y), suiting.scores)
    gradients = {
        id(variable): np.asarray(value) for variable, value in zip(model.trainable_variables, values, strict=True)
    }
    found: dict[str, dict[str, float]] = {}
    for layer in leaves(model):
        for variable in layer.trainable_variables:
            gradient = gradients[id(variable)].astype("float64")
            if isinstance(layer, HighwayStack):
                rows = zip(layer_names(layer.name, layer.depth), gradient, strict=True)
            else:
                rows = zip((layer.name,), (gradient,), strict=True)
            for name, of_layer in rows:
                found.setdefault(name, {})[variable.name] = float(np.sqrt(np.square(of_layer).sum()))
    return found


class Jacobian(NamedTuple):
    """The three parts of dy/dx of a highway layer; their sum is the Jacobian: `[examples, outputs, inputs]`."""

    identity: np.ndarray
    """1 - T on the diagonal: what the layer passes on as it is."""
    transform: np.ndarray
    """T * dH/dx: through the block state."""
    gate: np.ndarray
    """(H - x) * dT/dx: through the gate."""

    @property
    def rest(self) -> np.ndarray:
        """All but the identity part."""
        return self.transform + self.gate


def jacobian(layer: Highway, x: np.ndarray) -> Jacobian:
    """The Jacobian of a dense highway layer in parts, by the formula.

    y = T * H + (1 - T) * x, and so dy/dx = diag(1 - T) + diag(T) dH/dx + diag(H - x) dT/dx. Where the gates are closed
    the identity alone is left, however many layers there are.

    Args:
        layer: built; of a stack one of `highway_keras.surgery.stacking.layers_of`.
        x: its inputs, `[examples, units]`.

    Returns:
        The parts, float64.

    Raises:
        ValueError: if the layer is not a dense one with C = 1 - T, without normalisation and dropout, or has an
            activation whose slope is not known from its output.

    Example:
        parts = jacobian(model.get_layer("highway_03"), inputs)
        numpy.linalg.norm(parts.rest, ord=2, axis=(1, 2))  # how much more than the identity, for each example

    Reference:
        arXiv 1507.06228, section 2, equations 3 to 5.
    """
    known = layer.activation in DERIVATIVES and layer.gate_activation in DERIVATIVES
    if (
        type(layer) is not Highway
        or any(getattr(layer, name) != value for name, value in UNSTACKED.items())
        or not known
    ):
        raise ValueError(
            "The parts are known for a `Highway` layer with a coupled carry gate, without batch normalisation and "
            f"dropout, whose activations have slopes known from their outputs. Received: {layer}"
        )
    x = np.asarray(x, "float64")
    sides = []
    for kernel, bias, activation in (
        (layer.kernel, layer.bias, layer.activation),
        (layer.transform_kernel, layer.transform_bias, layer.gate_activation),
    ):
        weights = ops.convert_to_numpy(kernel).astype("float64")
        output = activation(ops.convert_to_tensor(x @ weights + ops.convert_to_numpy(bias), dtype="float32"))
        slope = ops.convert_to_numpy(DERIVATIVES[activation](output)).astype("float64")
        sides.append((ops.convert_to_numpy(output).astype("float64"), slope[:, :, None] * weights.T))
    (block, block_slope), (transform, gate_slope) = sides
    of = partials(block, x, transform)
    return Jacobian(
        identity=of.inputs[:, :, None] * np.eye(x.shape[1]),
        transform=of.block[:, :, None] * block_slope,
        gate=of.transform[:, :, None] * gate_slope,
    )


def _mean_loss(y: Any, outputs: Any, scores: Scores) -> Any:
    loss, mask = scores(y, outputs)["loss"], averages.mask_of(outputs)
    if mask is None:
        return ops.mean(loss)
    return ops.sum(averages.total(loss, mask)) / ops.sum(averages.total(ops.ones_like(loss), mask))


def _gradients(model: keras.Model, x: Any, y: Any, scores: Scores) -> list[Any]:
    """Gradients of the mean loss with respect to the trainable variables."""
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        @tf.function(autograph=False)
        def of_tensorflow(x: Any, y: Any) -> list[Any]:
            with tf.GradientTape() as tape:
                loss = _mean_loss(y, model(x, training=False), scores)
            variables = [variable.value for variable in model.trainable_variables]
            found = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return [tf.convert_to_tensor(gradient) for gradient in found]  # That of an embedding is sparse.

        return of_tensorflow(x, y)
    import jax

    def loss(values: list[Any], x: Any, y: Any) -> Any:
        with keras.StatelessScope(state_mapping=list(zip(model.trainable_variables, values, strict=True))):
            outputs = model(x, training=False)
        return _mean_loss(y, outputs, scores)

    return jax.jit(jax.grad(loss))([variable.value for variable in model.trainable_variables], x, y)
