"""A net as `highway train` builds and compiles it, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.conv_fit import fitting
from benchmarks.conv_problem import MOMENTUM, NETS, ConvProblem, Precision
from benchmarks.worker import Train, serve
from pipelines import recipes
from pipelines.core import environment
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


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = ConvProblem.from_json(task)
    if "gpu" in problem.options and not environment.accelerators():
        raise SystemExit(f"{keras.backend.backend()} sees no GPU: install it with CUDA (make install ACCELERATOR=gpu)")
    net = build(problem.recipe, problem.precision)
    weights = problem.initial()
    for layer in net.layers:
        for weight in layer.weights:
            weight.assign(weights[f"{layer.name}/{weight.name}"])
    settings = config(problem.recipe)
    model = nets.compiled(net, settings, problem.precision, 390, bool(environment.accelerators()))
    loss = keras.metrics.CategoricalCrossentropy(
        name="crossentropy", from_logits=True, label_smoothing=settings.label_smoothing
    )
    model.compile(optimizer=model.optimizer, loss=model.loss, metrics=[loss], jit_compile=model.jit_compile)
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
