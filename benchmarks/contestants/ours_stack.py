"""The net with `highway_keras.HighwayStack`; the backend is KERAS_BACKEND.

The option "devices" trains as `highway train` does on JAX: many steps in one program, and each batch divided among all
devices, which on a CPU are as many as XLA_FLAGS says.
"""

import os
from contextlib import nullcontext

if os.environ["KERAS_BACKEND"] == "tensorflow":  # As the command starts; on JAX TensorFlow is not there.
    from pipelines.core import frameworks

    frameworks.load()

import keras

import highway_keras
from benchmarks.contestants.keras_training import fitting
from benchmarks.problem import BATCH, Problem
from benchmarks.worker import Train, serve
from pipelines.training.many_steps import ManySteps, drawing


def start(task: str) -> Train:
    """Makes the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    weights = problem.initial()
    inputs = keras.Input((weights["entry_kernel"].shape[0],))
    entry = keras.layers.Dense(problem.width, activation="tanh")
    stack = highway_keras.HighwayStack(problem.depth, activation="tanh")
    head = keras.layers.Dense(10)
    # As `highway train` does.
    with drawing() if "devices" in problem.options else nullcontext():
        outputs = head(stack(entry(inputs)))
    if "devices" in problem.options:
        model = ManySteps(inputs, outputs, batch_size=BATCH)
    else:
        model = keras.Model(inputs, outputs)
    entry.set_weights([weights["entry_kernel"], weights["entry_bias"]])
    head.set_weights([weights["head_kernel"], weights["head_bias"]])
    for name in ("kernel", "bias", "transform_kernel", "transform_bias"):
        getattr(stack, name).assign(weights[name])
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
