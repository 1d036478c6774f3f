"""The 19-layer CIFAR net of our recipe, without its dropout: its weights are those that all contestants start from."""

import keras

from benchmarks.conv_problem import LEARNING_RATE, MOMENTUM, Precision
from pipelines import recipes
from pipelines.core.config import Config
from pipelines.core.optimizers import SGD
from pipelines.data.sources import DataInfo
from pipelines.training import net as nets

CIFAR = DataInfo("cifar10", "", (32, 32, 3), tuple("0123456789"), {"train": 50_000, "validation": 0, "test": 10_000})


def config() -> Config:
    """Returns the recipe with the optimizer of all contestants, which has no separate learning rate for biases."""
    optimizer = SGD(learning_rate=LEARNING_RATE, momentum=MOMENTUM, nesterov=True)
    return recipes.get("cifar10_19").config.model_copy(update={"optimizer": optimizer})


def build(precision: Precision) -> keras.Model:
    """Builds the net without its dropout, with new weights."""
    net = nets.build(config(), CIFAR, precision)
    for layer in net.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return net
