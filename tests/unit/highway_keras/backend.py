"""Differences between the backends: precision, marks, compilation and gradients; and random weights and inputs."""

import keras
import numpy as np
import pytest
from hypothesis import settings

BACKEND = keras.backend.backend()
# JAX needs float64 to be enabled before it starts, and Keras multiplies matrices in float32 on PyTorch.
PRECISE = "float64" if BACKEND == "tensorflow" else "float32"
TOLERANCE = {"float64": {"rtol": 1e-9, "atol": 1e-9}, "float32": {"rtol": 2e-4, "atol": 2e-5}}[PRECISE]
few_examples = settings(max_examples=3 if BACKEND == "jax" else 10, deadline=None, derandomize=True, database=None)

compiles = pytest.mark.skipif(BACKEND == "torch", reason="PyTorch runs eagerly and compiles nothing")
MARKS_ON_JAX = [pytest.mark.slow] if BACKEND == "jax" else []


def slow_on_jax(test):
    """Leaves a test to the slow tier on JAX, which compiles every operation for every shape."""
    return pytest.mark.slow(test) if BACKEND == "jax" else test


def param_slow_on_jax(*values):
    """Leaves one set of parameters to the slow tier on JAX."""
    return pytest.param(*values, marks=MARKS_ON_JAX)


def param_slow(*values):
    """Leaves one set of parameters to the slow tier."""
    return pytest.param(*values, marks=pytest.mark.slow)


def array(tensor):
    wide = BACKEND != "jax" or str(getattr(tensor, "dtype", None)) == "float64"
    return keras.ops.convert_to_numpy(keras.ops.cast(tensor, "float64" if wide else "float32"))


def weights_of(layer):
    return {weight.name: array(weight).astype("float64") for weight in layer.weights}


def scramble(layer, seed=0):
    """Sets every weight to random values, so that no zero or one hides a bug."""
    rng = np.random.default_rng(seed)
    for weight in layer.weights:
        positive = "variance" in weight.name
        weight.assign(rng.uniform(0.5 if positive else -1.0, 1.5 if positive else 1.0, weight.shape))
    return layer


def inputs(*shape, seed=1):
    return np.random.default_rng(seed).normal(size=shape).astype(PRECISE)


def gradients(layer, x, upstream, training=False):
    """Returns the gradients of sum(y * upstream) by name: "x" and each trainable weight."""
    names = ["x", *[variable.name for variable in layer.trainable_variables]]
    values = gradient_tensors(layer, x, upstream, training)
    return {name: array(value) for name, value in zip(names, values, strict=True)}


def gradient_tensors(layer, x, upstream, training=False):
    """Returns the gradients of sum(y * upstream) with respect to x and each trainable weight."""
    upstream = keras.ops.convert_to_tensor(upstream)

    def total(y):
        return keras.ops.sum(keras.ops.cast(y, upstream.dtype) * upstream)

    if BACKEND == "tensorflow":
        import tensorflow as tf

        x = tf.convert_to_tensor(x)
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = total(layer(x, training=training))
        return tape.gradient(loss, [x, *[variable.value for variable in layer.trainable_variables]])
    if BACKEND == "torch":
        import torch

        x = torch.tensor(x, requires_grad=True)
        variables = [variable.value for variable in layer.trainable_variables]
        return torch.autograd.grad(total(layer(x, training=training)), [x, *variables])
    import jax

    fixed = [variable.value for variable in layer.non_trainable_variables]

    def loss(values):
        y, _ = layer.stateless_call(values[1:], fixed, values[0], training=training)
        return total(y)

    # Operation by operation, JAX would compile a program for each.
    return jax.jit(jax.grad(loss))([jax.numpy.asarray(x), *[variable.value for variable in layer.trainable_variables]])


def compiled(function, xla=True):
    """Compiles a function with XLA, or with TensorFlow's own compiler on request; PyTorch runs it as it is."""
    if BACKEND == "tensorflow":
        import tensorflow as tf

        return tf.function(function, jit_compile=xla)
    if BACKEND == "torch":
        return function
    import jax

    return jax.jit(function)
