"""The dense problem that all contestants train: data, initial weights, and the cost of a step.

784 -> 50 tanh, N highway blocks 50 -> 50 tanh, softmax over 10 classes; Adam 5e-3 (0.9, 0.999), the gradient of all
weights clipped to a global norm of 5.0, batch 128, weights uniform in ±1 / sqrt(fan in), 6,000 images (46 batches per
epoch), 12 epochs. The NumPy study that recorded these has gate bias -2 up to 50 layers and Adam's epsilon 1e-8. Deeper
nets need gates that start more closed: at 100 layers and -2 the last bits decide whether a net learns. Keras adds
epsilon before it corrects the second moment, all others after; with 1e-8 this alone changes the loss of step 10 by 6e-3
at depth 30, with 1e-12 by 1e-5.
"""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

Arrays = dict[str, np.ndarray]

PIXELS, CLASSES = 784, 10
BATCH, EPOCH, EPOCHS = 128, 46, 12


@dataclass(frozen=True)
class Training:
    """The training of any contestant, small enough for a command line.

    Args:
        batches: file with `images` float32 [steps, batch, ...] and `labels` int32 [steps, batch].
        weights: file with the initial weights by name.
        options: options of the contestant.
    """

    batches: str
    weights: str
    options: tuple[str, ...] = field(default=(), kw_only=True)

    def to_json(self) -> str:
        """Serializes it for a command line."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "options": tuple(fields["options"])})

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Images and labels."""
        with np.load(self.batches) as file:
            return file["images"], file["labels"]

    def initial(self) -> Arrays:
        """The initial weights."""
        with np.load(self.weights) as file:
            return dict(file)


@dataclass(frozen=True)
class Problem(Training):
    """The training of one dense net, from `initial_weights`, on images [steps, batch, 784] in [-1, 1].

    Args:
        depth: highway blocks.
        width: units of each.
        learning_rate: Adam's learning rate.
        clip_norm: largest norm of the whole gradient.
        epsilon: Adam's epsilon.
    """

    depth: int
    width: int
    learning_rate: float = 5e-3
    clip_norm: float = 5.0
    epsilon: float = 1e-12


def transform_bias(depth: int) -> float:
    """The gate bias that nets of this depth learn with."""
    return -2.0 if depth <= 50 else -4.0 if depth <= 100 else -10.0


def initial_weights(depth: int, width: int, seed: int = 0) -> Arrays:
    """The weights that every contestant starts from.

    Args:
        depth: highway blocks.
        width: units of each.
        seed: seed of the draw.

    Returns:
        float32: `entry_kernel` [784, width], `entry_bias`; `kernel` and `transform_kernel` [depth, width, width],
        applied as x @ kernel[d], `bias` and `transform_bias` [depth, width]; `head_kernel` [width, 10], `head_bias`.
    """
    rng = np.random.default_rng(seed)

    def uniform(*shape: int) -> np.ndarray:
        bound = 1 / np.sqrt(shape[-2])
        return rng.uniform(-bound, bound, shape).astype(np.float32)

    return {
        "entry_kernel": uniform(PIXELS, width),
        "entry_bias": np.zeros(width, np.float32),
        "kernel": uniform(depth, width, width),
        "bias": np.zeros((depth, width), np.float32),
        "transform_kernel": uniform(depth, width, width),
        "transform_bias": np.full((depth, width), transform_bias(depth), np.float32),
        "head_kernel": uniform(width, CLASSES),
        "head_bias": np.zeros(CLASSES, np.float32),
    }


def batches(images: np.ndarray, labels: np.ndarray, seed: int = 0) -> Arrays:
    """One epoch of batches, the same for every contestant and every epoch.

    Args:
        images: uint8 [n, 28, 28, 1].
        labels: integers [n].
        seed: seed of the order. A set of fewer than 5,888 images gives some of them twice.

    Returns:
        `images` float32 [46, 128, 784] in [-1, 1] and `labels` int32 [46, 128].
    """
    order = np.resize(np.random.default_rng(seed).permutation(len(labels)), EPOCH * BATCH)
    pixels = images[order].reshape(EPOCH, BATCH, PIXELS).astype(np.float32) / 127.5 - 1
    return {"images": pixels, "labels": labels[order].reshape(EPOCH, BATCH).astype(np.int32)}


def write(path: Path, arrays: Arrays) -> None:
    """Writes arrays as an uncompressed .npz."""
    with path.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def flops(depth: int, width: int) -> int:
    """Floating-point operations of a training step in matrix products, 2 for a multiplication with its addition.

    A block has two products of [batch, width] and [width, width] forward and twice as many backward, for weights and
    inputs; the first layer has none for its inputs. Activations, gates, clipping and Adam are not counted.
    """
    entry = 2 * BATCH * PIXELS * width * 2
    blocks = depth * 2 * (2 * BATCH * width * width) * 3
    head = 2 * BATCH * width * CLASSES * 3
    return entry + blocks + head


def traffic(depth: int, width: int) -> int:
    """Bytes that a training step moves at least, if every array is read or written once where it is needed.

    Weights are read forward and backward and written once, gradients written and read, both moments of Adam read and
    written: 9 passes over the weights. Input, block state and gate of each block are written and read: 6 passes over
    activations. What stays in a cache moves less through memory.
    """
    weights = PIXELS * width + width + depth * 2 * (width * width + width) + width * CLASSES + CLASSES
    return 4 * (9 * weights + 6 * depth * BATCH * width + BATCH * PIXELS)
