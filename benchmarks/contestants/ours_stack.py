"""The net with `highway_keras.HighwayStack`, on the backend in KERAS_BACKEND.

The option "devices" trains like `highway train` on JAX: one program runs several steps, and each batch is split across
the devices that suit the stack, whose number on a CPU is set by XLA_FLAGS. The option "loop" trains the net in
PyTorch's loop instead of in `fit`.
"""

import os
from contextlib import nullcontext

if os.environ["KERAS_BACKEND"] == "tensorflow":  # As `highway` does; the environment for JAX has no TensorFlow.
    from pipelines.core import frameworks

    frameworks.load()

import keras

import highway_keras
from benchmarks.contestants.keras_training import fitting
from benchmarks.problem import BATCH, Problem
from benchmarks.worker import Train, serve
from pipelines.training.initialization import fast_initializers
from pipelines.training.steps_per_execution import MultiStepModel, device_count


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    weights = problem.initial()
    inputs = keras.Input((weights["entry_kernel"].shape[0],))
    entry = keras.layers.Dense(problem.width, activation="tanh")
    stack = highway_keras.HighwayStack(problem.depth, activation="tanh")
    head = keras.layers.Dense(10)
    # `highway train` draws initial weights in this context too.
    with fast_initializers() if "devices" in problem.options else nullcontext():
        outputs = head(stack(entry(inputs)))
    if "devices" in problem.options:
        import jax

        model = MultiStepModel(
            inputs, outputs, devices=device_count(BATCH, jax.device_count(), (problem.depth, problem.width))
        )
    else:
        model = keras.Model(inputs, outputs)
    entry.set_weights([weights["entry_kernel"], weights["entry_bias"]])
    head.set_weights([weights["head_kernel"], weights["head_bias"]])
    for name in ("kernel", "bias", "transform_kernel", "transform_bias"):
        getattr(stack, name).assign(weights[name])
    if "loop" in problem.options:
        from benchmarks.contestants.torch_training import train_dense

        return train_dense(model, model, problem)
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
