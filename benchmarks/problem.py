"""The dense problem that all contestants train: data, initial weights, and the cost of a step.

The net is 784 -> 50 tanh, N highway blocks 50 -> 50 tanh, and softmax over 10 classes, with weights uniform in
±1 / sqrt(fan in). It trains by Adam 5e-3 (0.9, 0.999), with the gradient of all weights clipped to a global norm of
5.0, batch 128, on 6,000 images (46 batches per epoch) for 12 epochs.

These settings were recorded in a NumPy study, with gate bias -2 up to 50 layers and Adam's epsilon 1e-8. Deeper nets
need gates that start more closed: with 100 layers and -2, rounding decides whether a net learns. Epsilon is 1e-12 here,
because Keras adds it before it corrects the second moment, and all others after: with 1e-8 this alone changes the loss
of step 10 by 6e-3 at depth 30, with 1e-12 by 1e-5. Wide nets have a lower learning rate: at 5e-3, rounding decides
what nets of 400 units learn.
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
    """A description of a training run, small enough for a command line.

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
        """Reads the result of `to_json`."""
        fields = json.loads(text)
        return cls(**{**fields, "options": tuple(fields["options"])})

    def data(self) -> tuple[np.ndarray, np.ndarray]:
        """Loads images and labels."""
        with np.load(self.batches) as file:
            return file["images"], file["labels"]

    def initial(self) -> Arrays:
        """Loads the initial weights."""
        with np.load(self.weights) as file:
            return dict(file)


@dataclass(frozen=True)
class Problem(Training):
    """The training of one dense net, from `initial_weights`, on images [steps, batch, 784] in [-1, 1].

    Args:
        depth: highway blocks.
        width: units per block.
        clip_norm: largest global norm of the gradient.
        epsilon: Adam's epsilon.
    """

    depth: int
    width: int
    clip_norm: float = 5.0
    epsilon: float = 1e-12

    @property
    def learning_rate(self) -> float:
        """Adam's learning rate, at which the net learns steadily."""
        return 5e-3 if self.width <= 100 else 1e-3


def transform_bias(depth: int) -> float:
    """Returns a gate bias with which nets of this depth learn."""
    return -2.0 if depth <= 50 else -4.0 if depth <= 100 else -10.0


def initial_weights(depth: int, width: int, seed: int = 0) -> Arrays:
    """Draws the weights that every contestant starts from.

    Args:
        depth: highway blocks.
        width: units per block.
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
    """Makes one epoch of batches, the same for every contestant and every epoch.

    Args:
        images: uint8 [n, 28, 28, 1].
        labels: integers [n].
        seed: seed of the order. With fewer than 5,888 images, some appear more than once.

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
    """Counts the floating-point operations of a training step in matrix products, 2 per multiply-add.

    A block has two products of [batch, width] and [width, width] in the forward pass and twice as many in the backward
    pass, for the gradients of weights and inputs; the first layer needs no gradient of its inputs. Activations, gates,
    clipping and Adam are not counted.
    """
    entry = 2 * BATCH * PIXELS * width * 2
    blocks = depth * 2 * (2 * BATCH * width * width) * 3
    head = 2 * BATCH * width * CLASSES * 3
    return entry + blocks + head


def traffic(depth: int, width: int) -> int:
    """Estimates the fewest bytes that a training step moves, if each use of an array reads or writes it once.

    Weights are read in both passes and written once, gradients are written and read, and both moments of Adam are read
    and written: 9 passes over the weights. Input, block state and gate of each block are written and read: 6 passes
    over activations. Arrays that stay in a cache cause less memory traffic.
    """
    weights = PIXELS * width + width + depth * 2 * (width * width + width) + width * CLASSES + CLASSES
    return 4 * (9 * weights + 6 * depth * BATCH * width + BATCH * PIXELS)
