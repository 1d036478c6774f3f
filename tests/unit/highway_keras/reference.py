"""Reference implementation of the highway equations in float64 NumPy, written from the paper."""

import itertools

import numpy as np


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def relu(z):
    return np.maximum(z, 0)


def affine(x, kernel, dilation=1, causal=False):
    """Computes x W on the last axis, or a stride-1 convolution with zero padding that keeps the size of x.

    A kernel of fewer channels than x convolves groups of them.
    """
    if kernel.ndim == 2:
        return x @ kernel
    sizes, groups = kernel.shape[:-2], x.shape[-1] // kernel.shape[-2]
    dilations = np.broadcast_to(dilation, len(sizes))
    reach = [(size - 1) * step for size, step in zip(sizes, dilations, strict=True)]
    around = [(width, 0) if causal else (width // 2, width - width // 2) for width in reach]
    padded = np.pad(x, [(0, 0), *around, (0, 0)])
    total = np.zeros((*x.shape[:-1], kernel.shape[-1]))
    for offset in itertools.product(*map(range, sizes)):
        starts = np.multiply(offset, dilations)
        window = tuple(slice(start, start + length) for start, length in zip(starts, x.shape[1:-1], strict=True))
        inputs = np.split(padded[(slice(None), *window)], groups, axis=-1)
        kernels = np.split(kernel[offset], groups, axis=-1)
        total += np.concatenate([part @ weights for part, weights in zip(inputs, kernels, strict=True)], axis=-1)
    return total


def normalize(z, weights, mean, variance, epsilon):
    return weights["gamma"] * (z - mean) / np.sqrt(variance + epsilon) + weights["beta"]


def block(x, weights, activation=relu, training=False, epsilon=1e-3, **convolution):
    """Computes H."""
    z = affine(x, weights["kernel"], **convolution)
    if "gamma" not in weights:
        return activation(z + weights.get("bias", 0))
    if not training:
        return activation(normalize(z, weights, weights["moving_mean"], weights["moving_variance"], epsilon))
    axes = tuple(range(z.ndim - 1))
    return activation(normalize(z, weights, z.mean(axes), z.var(axes), epsilon))


def transform(x, weights, gate=sigmoid, **convolution):
    """Computes T."""
    return gate(affine(x, weights["transform_kernel"], **convolution) + weights["transform_bias"])


def forward(x, weights, *, activation=relu, gate=sigmoid, kept=1.0, training=False, epsilon=1e-3, **convolution):
    """Computes y; `kept` multiplies T: the dropout mask in training, its mean in inference."""
    t = transform(x, weights, gate, **convolution) * kept
    c = 1 - t
    if "carry_kernel" in weights:
        c = gate(affine(x, weights["carry_kernel"], **convolution) + weights["carry_bias"])
    return block(x, weights, activation, training, epsilon, **convolution) * t + x * c


def gradients(x, weights, upstream, step=1e-6, **options):
    """Computes central differences of sum(y * upstream) with respect to x and every weight."""

    def total(values):
        return np.sum(forward(values["x"], values, **options) * upstream)

    values = {"x": x, **weights}
    found = {}
    for name, value in values.items():
        found[name] = np.zeros(value.shape)
        for index in np.ndindex(value.shape):
            moved = []
            for sign in (1, -1):
                other = value.copy()
                other[index] += sign * step
                moved.append(total({**values, name: other}))
            found[name][index] = (moved[0] - moved[1]) / (2 * step)
    return found
