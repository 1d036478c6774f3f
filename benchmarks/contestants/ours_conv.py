"""The 19-layer CIFAR net as `highway train cifar10_19` builds and compiles it, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.conv_fit import fitting
from benchmarks.conv_problem import LEARNING_RATE, MOMENTUM, ConvProblem, Precision, weights_of
from benchmarks.worker import Train, serve
from pipelines import recipes
from pipelines.core import environment
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


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = ConvProblem.from_json(task)
    if "gpu" in problem.options and not environment.accelerators():
        raise SystemExit(f"{keras.backend.backend()} sees no GPU: install it with CUDA (make install ACCELERATOR=gpu)")
    net = build(problem.precision)
    weights = problem.initial()
    for name in weights_of(net):
        layer, weight = name.split("/")
        getattr(net.get_layer(layer), weight).assign(weights[name])
    model = nets.compiled(net, config(), problem.precision, 390, bool(environment.accelerators()))
    loss = keras.metrics.CategoricalCrossentropy(name="crossentropy", from_logits=True)
    model.compile(optimizer=model.optimizer, loss=model.loss, metrics=[loss], jit_compile=model.jit_compile)
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
