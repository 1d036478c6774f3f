"""The convolutional problem that all contestants train: the 19-layer CIFAR net of the paper's Table 3.

Batches of 128 preprocessed images, the same few again and again; SGD 0.025 with Nesterov momentum 0.9, weight decay as
recorded. No contestant uses dropout, so that losses can be compared, or another learning rate for biases.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.problem import Arrays, Training

BATCH, BATCHES = 128, 4
LEARNING_RATE, MOMENTUM = 0.025, 0.9
L2, CLASSIFIER_L2 = 5e-4, 5e-3
# Filters of a stage and its highway blocks; between stages a 2 x 2 pool.
STAGES = ((32, 4), (80, 5), (128, 5))
LAST = 100


Precision = Literal["float32", "mixed_bfloat16"]


@dataclass(frozen=True)
class ConvProblem(Training):
    """The training of one net in one precision, from our net's weights by "layer/weight", on images [.., 32, 32, 3].

    Args:
        precision: "float32" or "mixed_bfloat16".
    """

    precision: Precision


def weights_of(model: Any) -> Arrays:
    """The weights of a Keras model by "layer/weight"."""
    return {f"{layer.name}/{weight.name}": weight.numpy() for layer in model.layers for weight in layer.weights}


def cifar(batch: int, prepared: bool) -> tuple[str, Arrays]:
    """Batches as the recipe `cifar10_19` preprocesses them, without augmentation.

    Args:
        batch: images in each.
        prepared: whether CIFAR-10 is at hand; else noise of the same spread stands for it.

    Returns:
        The name of the data, and the arrays of `ConvProblem.batches`.
    """
    from pipelines import recipes
    from pipelines.data import batches, preprocess, sources

    rng = np.random.default_rng(0)
    config = recipes.get("cifar10_19").config
    if not prepared:
        noise = rng.normal(0, config.preprocess.contrast or 1.0, (BATCHES, batch, 32, 32, 3)).astype(np.float32)
        return "noise", {"images": noise, "labels": rng.integers(0, 10, (BATCHES, batch), np.int32)}
    examples = sources.load("cifar10", "train")
    fitted = preprocess.fit(config.preprocess, examples.images)
    seen = batches.evaluation(examples, fitted, batch_size=batch, classes=10).take(BATCHES)
    x, one_hot = (np.stack(arrays) for arrays in zip(*seen.as_numpy_iterator(), strict=True))
    return "cifar10", {"images": x, "labels": np.argmax(one_hot, axis=-1).astype(np.int32)}


def flops(batch: int) -> int:
    """Floating-point operations of a training step in convolutions and products, 2 for a multiply-add.

    Three times those of the forward pass, less the first convolution's gradient by its inputs.
    """
    side, channels, forward, first = 32, 3, 0, 0
    for filters, blocks in STAGES:
        entry = 2 * side**2 * 9 * channels * filters
        first = first or entry
        forward += entry + blocks * 2 * 2 * side**2 * 9 * filters**2
        side, channels = (side // 2, filters) if filters != STAGES[-1][0] else (side, filters)
    forward += 2 * side**2 * channels * LAST + 2 * LAST * 10
    return batch * (3 * forward - first)
