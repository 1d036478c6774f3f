"""Reference implementation of the highway equations in float64 NumPy, written from the paper."""

import itertools

import numpy as np


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def relu(z):
    return np.maximum(z, 0)


def affine(x, kernel):
    """Computes x W on the last axis, or a stride-1 convolution with zero padding that keeps the size of x."""
    if kernel.ndim == 2:
        return x @ kernel
    sizes = kernel.shape[:-2]
    around = [(0, 0), *[((size - 1) // 2, size // 2) for size in sizes], (0, 0)]
    padded = np.pad(x, around)
    total = np.zeros((*x.shape[:-1], kernel.shape[-1]))
    for offset in itertools.product(*map(range, sizes)):
        window = tuple(slice(start, start + length) for start, length in zip(offset, x.shape[1:-1], strict=True))
        total += padded[(slice(None), *window)] @ kernel[offset]
    return total


def normalize(z, weights, mean, variance):
    return weights["gamma"] * (z - mean) / np.sqrt(variance + 1e-3) + weights["beta"]


def block(x, weights, activation=relu, training=False):
    """Computes H."""
    z = affine(x, weights["kernel"])
    if "gamma" not in weights:
        return activation(z + weights["bias"])
    if not training:
        return activation(normalize(z, weights, weights["moving_mean"], weights["moving_variance"]))
    axes = tuple(range(z.ndim - 1))
    return activation(normalize(z, weights, z.mean(axes), z.var(axes)))


def transform(x, weights, gate=sigmoid):
    """Computes T."""
    return gate(affine(x, weights["transform_kernel"]) + weights["transform_bias"])


def forward(x, weights, *, activation=relu, gate=sigmoid, kept=1.0, training=False):
    """Computes y; `kept` multiplies T: the dropout mask in training, its mean in inference."""
    t = transform(x, weights, gate) * kept
    c = 1 - t
    if "carry_kernel" in weights:
        c = gate(affine(x, weights["carry_kernel"]) + weights["carry_bias"])
    return block(x, weights, activation, training) * t + x * c


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
