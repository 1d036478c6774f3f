"""Stacks with random weights, and the equivalent single layers."""

import keras
import numpy as np

from highway_keras import Highway, HighwayStack
from tests.unit.highway_keras.backend import PRECISE, array, gradient_tensors

PARTS = ("kernel", "bias", "transform_kernel", "transform_bias")


def random_stack(depth, shape, seed=0, **arguments):
    """Returns a stack built for inputs of a shape, with random weights."""
    arguments = {"kernel_initializer": "zeros", "transform_initializer": "zeros", "dtype": PRECISE, **arguments}
    stack = HighwayStack(depth, **arguments)
    stack.build(shape)
    rng = np.random.default_rng(seed)
    for weight in stack.weights:
        weight.assign(rng.uniform(-1.5, 1.5, weight.shape) / np.sqrt(shape[-1]))
    return stack


def unrolled(stack, **arguments):
    """Returns a sequential model of the single layers of a stack, with copies of its weights."""
    config = {**stack.get_config(), "depth": None, **arguments}
    del config["rematerialize"], config["name"]
    rows = [array(getattr(stack, part)) for part in PARTS]
    layers = []
    for weights in zip(*rows, strict=True):
        layer = Highway.from_config(config)
        layer.build((None,) * (stack.input_spec.ndim - 1) + (weights[0].shape[-1],))
        for part, weight in zip(PARTS, weights, strict=True):
            getattr(layer, part).assign(weight)
        layers.append(layer)
    shape = (*[None] * (stack.input_spec.ndim - 2), stack.kernel.shape[-1])
    return keras.Sequential([keras.Input(shape, dtype=stack.dtype), *layers])


def gradients(model, x, upstream, training=True):
    """Returns the gradients of x and the weights, stacked for single layers."""
    found = [array(tensor) for tensor in gradient_tensors(model, x, upstream, training)]
    if isinstance(model, HighwayStack):
        return dict(zip(("x", *PARTS), found, strict=True))
    return {"x": found[0], **{part: np.stack(found[1 + start :: 4]) for start, part in enumerate(PARTS)}}


def assert_close(found, expected, precision):
    """Asserts equality up to rounding, relative to the largest number of each array."""
    if not isinstance(expected, dict):
        found, expected = {"": found}, {"": expected}
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        allowed = {"float32": 1e-4, "float64": 1e-11}[precision] * max(1.0, np.abs(value).max(initial=0))
        np.testing.assert_allclose(found[name], value, rtol=0, atol=allowed, err_msg=name)
