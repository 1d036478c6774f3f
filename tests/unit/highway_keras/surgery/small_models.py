"""Small models of highway layers and stacks."""

import keras
import numpy as np

from highway_keras import Highway, HighwayStack
from tests.unit.highway_keras.backend import array, scramble

X = np.random.default_rng(0).normal(size=(3, 4)).astype("float32")
ZEROS = {"kernel_initializer": "zeros", "transform_initializer": "zeros"}


def highway(name=None, **arguments):
    return Highway(name=name, **{**ZEROS, **arguments})


def stack(depth, name=None, **arguments):
    return HighwayStack(depth, name=name, **{**ZEROS, **arguments})


def chain(*layers, features=4):
    return scramble(keras.Sequential([keras.Input((features,), name="features"), *layers]))


def functional(*layers):
    x = inputs = keras.Input((4,), name="features")
    for layer in layers:
        x = layer(x)
    return scramble(keras.Model(inputs, x, name="whole"))


def kinds(model):
    """Maps each highway layer to "layer" and each stack to its depth."""
    found = {}
    for layer in model.layers:
        if isinstance(layer, HighwayStack):
            found[layer.name] = layer.depth
        elif isinstance(layer, Highway):
            found[layer.name] = "layer"
    return found


def assert_same(model, other, x=X):
    for y, expected in zip(*(keras.tree.flatten(each(x)) for each in (model, other)), strict=True):
        np.testing.assert_allclose(array(y), array(expected), rtol=1e-4, atol=1e-5)
