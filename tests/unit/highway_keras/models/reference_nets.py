"""Nets in float64 NumPy, layer by layer, with the weights of a model."""

import numpy as np

from tests.unit.highway_keras import reference
from tests.unit.highway_keras.backend import array, weights_of


def plain_layer(model, name, x, activation):
    w = weights_of(model.get_layer(name))
    return activation(reference.affine(x, w["kernel"]) + w["bias"])


def highway_weights(model, name):
    """Returns the weights of a highway layer, or of one layer of a stack, such as "highway_02"."""
    if name in layer_names(model):
        return weights_of(model.get_layer(name))
    stack, number = name.rsplit("_", 1)
    return {weight: rows[int(number) - 1] for weight, rows in weights_of(model.get_layer(stack)).items()}


def block(model, kind, name, x, activation):
    if kind == "plain":
        return plain_layer(model, name, x, activation)
    if kind == "residual":
        return x + plain_layer(model, f"{name}_h", x, activation)
    return reference.forward(x, highway_weights(model, name), activation=activation)


def pool(x, size, stride):
    """Applies max pooling with "same" padding."""
    for axis in (1, 2):
        length = x.shape[axis]
        outputs = -(-length // stride)
        overhang = max(0, (outputs - 1) * stride + size - length)
        around = [(0, 0)] * 4
        around[axis] = (overhang // 2, overhang - overhang // 2)
        padded = np.pad(x, around, constant_values=-np.inf)
        starts = range(0, outputs * stride, stride)
        x = np.stack([padded.take(range(start, start + size), axis).max(axis) for start in starts], axis)
    return x


def perturb(model, seed=0):
    """Perturbs every weight, so that a misplaced bias shows."""
    rng = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(array(weight) + rng.normal(0, 0.3, weight.shape))
    return model


def layer_names(model):
    return [layer.name for layer in model.layers]
