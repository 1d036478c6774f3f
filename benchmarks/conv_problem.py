"""The convolutional problems that all contestants train: the nets of two recipes for CIFAR-10.

They train on the same few batches of preprocessed images again and again, by SGD with Nesterov momentum 0.9 and the
weight decay of the recipe. No contestant uses dropout, so that losses can be compared, a schedule of the learning rate,
or a separate learning rate for biases.
"""

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.problem import Arrays, Training

BATCHES = 4
MOMENTUM = 0.9


Precision = Literal["float32", "mixed_bfloat16"]


class NetStage(NamedTuple):
    """A part of a net with a constant number of channels.

    Args:
        filters: channels.
        blocks: highway blocks, 3 x 3.
        entry: kernel size of the plain convolution before them, None for none.
        pool: whether 2 x 2 max pooling ends the stage. Global average pooling ends the last one.
    """

    filters: int
    blocks: int
    entry: int | None = 3
    pool: bool = False


@dataclass(frozen=True)
class NetDefinition:
    """A net and its training.

    Args:
        stages: stages of the net.
        batch: images per batch.
        learning_rate: constant learning rate.
        l2: factor of the L2 penalty on the kernels of convolutions.
        classifier_l2: the same for the classifier.
        weight_decay: decoupled weight decay of all kernels.
        label_smoothing: share of the target that is spread over all classes.
        normalized: whether entries and H of each block are batch normalized, without a bias.
    """

    stages: tuple[NetStage, ...]
    batch: int
    learning_rate: float
    l2: float = 0.0
    classifier_l2: float = 0.0
    weight_decay: float = 0.0
    label_smoothing: float = 0.0
    normalized: bool = False


# The net of the paper's Table 3.
PAPER = NetDefinition(
    (NetStage(32, 4, pool=True), NetStage(80, 5, pool=True), NetStage(128, 5), NetStage(100, 0, entry=1)),
    batch=128,
    learning_rate=0.025,
    l2=5e-4,
    classifier_l2=5e-3,
)
# The recipe's learning rate rises from 0 to 0.4 and falls to 0; this is the mean.
MODERN = NetDefinition(
    (
        NetStage(48, 1),
        NetStage(96, 0, pool=True),
        NetStage(96, 2, entry=None),
        NetStage(157, 0, pool=True),
        NetStage(157, 2, entry=None),
        NetStage(176, 0, pool=True),
        NetStage(176, 1, entry=None),
    ),
    batch=250,
    learning_rate=0.2,
    weight_decay=5e-3,
    label_smoothing=0.1,
    normalized=True,
)
NETS = {"cifar10_19": PAPER, "cifar10_modern": MODERN}


@dataclass(frozen=True)
class ConvProblem(Training):
    """The training of a net in one precision, from our net's weights by "layer/weight", on images [.., 32, 32, 3].

    Args:
        recipe: name of the recipe, in `NETS`.
        precision: "float32" or "mixed_bfloat16".
    """

    recipe: str
    precision: Precision

    @property
    def net(self) -> NetDefinition:
        """The net and its training."""
        return NETS[self.recipe]


def weights_of(model: Any) -> Arrays:
    """Returns the weights of a Keras model by "layer/weight"."""
    return {f"{layer.name}/{weight.name}": weight.numpy() for layer in model.layers for weight in layer.weights}


def cifar(recipe: str, batch: int, prepared: bool) -> tuple[str, Arrays]:
    """Makes batches with the preprocessing of a recipe, without augmentation.

    Args:
        recipe: name of the recipe.
        batch: images per batch.
        prepared: whether CIFAR-10 is available; otherwise noise of the same spread replaces it.

    Returns:
        The name of the data, and the arrays of `ConvProblem.batches`.
    """
    from pipelines import recipes
    from pipelines.data import batches, preprocess, sources

    rng = np.random.default_rng(0)
    config = recipes.get(recipe).config
    if not prepared:
        noise = rng.normal(0, config.preprocess.contrast or 1.0, (BATCHES, batch, 32, 32, 3)).astype(np.float32)
        return "noise", {"images": noise, "labels": rng.integers(0, 10, (BATCHES, batch), np.int32)}
    examples = sources.load("cifar10", "train")
    fitted = preprocess.fit(config.preprocess, examples.images)
    seen = batches.evaluation(examples, fitted, batch_size=batch, classes=10).take(BATCHES)
    x, one_hot = (np.stack(arrays) for arrays in zip(*seen.as_numpy_iterator(), strict=True))
    return "cifar10", {"images": x, "labels": np.argmax(one_hot, axis=-1).astype(np.int32)}


def flops(net: NetDefinition, batch: int) -> int:
    """Counts the floating-point operations of a training step in convolutions and products, 2 per multiply-add.

    A step takes three times the operations of the forward pass, less the gradient of the first convolution with respect
    to its inputs.
    """
    side, channels, forward, first = 32, 3, 0, 0
    for stage in net.stages:
        if stage.entry:
            entry = 2 * side**2 * stage.entry**2 * channels * stage.filters
            first = first or entry
            forward += entry
        channels = stage.filters
        forward += stage.blocks * 2 * 2 * side**2 * 9 * channels**2
        side = side // 2 if stage.pool else side
    forward += 2 * channels * 10
    return batch * (3 * forward - first)
