"""Our net of a recipe, without its dropout: its weights are those that all contestants start from."""

import keras

from benchmarks.conv_problem import MOMENTUM, NETS, Precision
from pipelines import recipes
from pipelines.core.config import Config
from pipelines.core.optimizers import SGD, ConstantSchedule
from pipelines.data.sources import DataInfo
from pipelines.training import net as nets

CIFAR = DataInfo("cifar10", "", (32, 32, 3), tuple("0123456789"), {"train": 50_000, "validation": 0, "test": 10_000})


def config(recipe: str) -> Config:
    """Returns a recipe with the optimizer of all contestants: one constant learning rate, for biases too."""
    net = NETS[recipe]
    optimizer = SGD(learning_rate=net.learning_rate, momentum=MOMENTUM, nesterov=True, weight_decay=net.weight_decay)
    return recipes.get(recipe).config.model_copy(update={"optimizer": optimizer, "schedule": ConstantSchedule()})


def build(recipe: str, precision: Precision) -> keras.Model:
    """Builds the net of a recipe without its dropout, with new weights."""
    net = nets.build(config(recipe), CIFAR, precision)
    for layer in net.layers:
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    return net
