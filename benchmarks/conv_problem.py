"""The convolutional problem that all contestants train: the 19-layer CIFAR net of the paper's Table 3.

They train on the same few batches of 128 preprocessed images again and again, by SGD with learning rate 0.025, Nesterov
momentum 0.9 and the recorded weight decay. No contestant uses dropout, so that losses can be compared, or a separate
learning rate for biases.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from benchmarks.problem import Arrays, Training

BATCH, BATCHES = 128, 4
LEARNING_RATE, MOMENTUM = 0.025, 0.9
L2, CLASSIFIER_L2 = 5e-4, 5e-3
# Filters and number of highway blocks of each stage; 2 x 2 pooling separates the stages.
STAGES = ((32, 4), (80, 5), (128, 5))
LAST = 100


Precision = Literal["float32", "mixed_bfloat16"]


@dataclass(frozen=True)
class ConvProblem(Training):
    """The training of a net in one precision, from our net's weights by "layer/weight", on images [.., 32, 32, 3].

    Args:
        precision: "float32" or "mixed_bfloat16".
    """

    precision: Precision


def weights_of(model: Any) -> Arrays:
    """Returns the weights of a Keras model by "layer/weight"."""
    return {f"{layer.name}/{weight.name}": weight.numpy() for layer in model.layers for weight in layer.weights}


def cifar(batch: int, prepared: bool) -> tuple[str, Arrays]:
    """Makes batches with the preprocessing of the recipe `cifar10_19`, without augmentation.

    Args:
        batch: images per batch.
        prepared: whether CIFAR-10 is available; otherwise noise of the same spread replaces it.

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
    """Counts the floating-point operations of a training step in convolutions and products, 2 per multiply-add.

    A step takes three times the operations of the forward pass, less the gradient of the first convolution with respect
    to its inputs.
    """
    side, channels, forward, first = 32, 3, 0, 0
    for filters, blocks in STAGES:
        entry = 2 * side**2 * 9 * channels * filters
        first = first or entry
        forward += entry + blocks * 2 * 2 * side**2 * 9 * filters**2
        side, channels = (side // 2, filters) if filters != STAGES[-1][0] else (side, filters)
    forward += 2 * side**2 * channels * LAST + 2 * LAST * 10
    return batch * (3 * forward - first)
