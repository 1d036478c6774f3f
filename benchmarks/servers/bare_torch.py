"""FastAPI and PyTorch."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.contestants.torch_module import Highway
from benchmarks.servers import web


def net(weights: list[np.ndarray]) -> nn.Sequential:
    """Builds the net of `mnist_dense_50` from Keras's weights, in Keras's order.

    Args:
        weights: kernel and bias of the entry, the stack's four arrays, kernel and bias of the last layer.
    """
    entry, entry_bias, kernels, biases, transform_kernels, transform_biases, head, head_bias = weights
    layers = [Highway(kernels.shape[-1]) for _ in kernels]
    for layer, *arrays in zip(layers, kernels, biases, transform_kernels, transform_biases, strict=True):
        _put(layer.block, *arrays[:2])
        _put(layer.transform, *arrays[2:])
    first, last = (nn.Linear(*kernel.shape) for kernel in (entry, head))
    _put(first, entry, entry_bias)
    _put(last, head, head_bias)
    return nn.Sequential(first, nn.Tanh(), *layers, last, nn.Softmax(-1))


def _put(linear: nn.Linear, kernel: np.ndarray, bias: np.ndarray) -> None:
    with torch.no_grad():
        linear.weight.copy_(torch.from_numpy(kernel.T))
        linear.bias.copy_(torch.from_numpy(bias))


def make(folder: Path) -> Callable[[np.ndarray], np.ndarray]:
    """Loads the weights; one thread is fastest for such a small net."""
    torch.set_num_threads(1)
    with np.load(folder.parent / "weights.npz") as kept:
        scale, *weights = (kept[name] for name in kept.files)
    model = net(weights).eval()

    def predict(images: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return model(torch.from_numpy(images.reshape(len(images), -1) * scale)).numpy()

    return predict


if __name__ == "__main__":
    web.run(make)
