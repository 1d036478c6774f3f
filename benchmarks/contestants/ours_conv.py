"""A net as `highway train` builds and compiles it, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.conv_fit import fitting
from benchmarks.conv_net import build, config
from benchmarks.conv_problem import ConvProblem
from benchmarks.worker import Train, serve
from pipelines.core import environment
from pipelines.training import net as nets


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
