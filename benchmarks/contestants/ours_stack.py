"""The net with `highway_keras.HighwayStack`; the backend is KERAS_BACKEND.

The option "devices" shares each batch among all devices, which on a CPU are as many as XLA_FLAGS says.
"""

import keras

import highway_keras
from benchmarks.contestants.keras_training import fitting
from benchmarks.problem import Problem
from benchmarks.worker import Train, serve


def start(task: str) -> Train:
    """Makes the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    if "devices" in problem.options:
        keras.distribution.set_distribution(keras.distribution.DataParallel())
    weights = problem.initial()
    inputs = keras.Input((weights["entry_kernel"].shape[0],))
    entry = keras.layers.Dense(problem.width, activation="tanh")
    stack = highway_keras.HighwayStack(problem.depth, activation="tanh")
    head = keras.layers.Dense(10)
    model = keras.Model(inputs, head(stack(entry(inputs))))
    entry.set_weights([weights["entry_kernel"], weights["entry_bias"]])
    head.set_weights([weights["head_kernel"], weights["head_bias"]])
    for name in ("kernel", "bias", "transform_kernel", "transform_bias"):
        getattr(stack, name).assign(weights[name])
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "highway-keras", "keras")
