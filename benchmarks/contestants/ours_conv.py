"""The 19-layer CIFAR net as `highway train cifar10_19` builds and compiles it, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.conv_fit import fitting
from benchmarks.conv_net import build, config
from benchmarks.conv_problem import ConvProblem, weights_of
from benchmarks.worker import Train, serve
from pipelines.core import environment
from pipelines.training import net as nets


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
