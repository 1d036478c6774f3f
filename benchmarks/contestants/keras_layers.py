"""The net in Keras without our library: two Dense layers per block, on the backend in KERAS_BACKEND."""

import keras

from benchmarks.contestants.keras_training import fitting
from benchmarks.problem import Problem
from benchmarks.worker import Train, serve


def start(task: str) -> Train:
    """Builds the net; see `benchmarks.worker`."""
    problem = Problem.from_json(task)
    weights = problem.initial()
    inputs = keras.Input((weights["entry_kernel"].shape[0],))
    entry, head = keras.layers.Dense(problem.width, activation="tanh"), keras.layers.Dense(10)
    blocks = [keras.layers.Dense(problem.width, activation="tanh") for _ in range(problem.depth)]
    transforms = [keras.layers.Dense(problem.width, activation="sigmoid") for _ in range(problem.depth)]
    x = entry(inputs)
    for block, transform in zip(blocks, transforms, strict=True):
        t = transform(x)
        x = t * block(x) + (1 - t) * x
    model = keras.Model(inputs, head(x))
    entry.set_weights([weights["entry_kernel"], weights["entry_bias"]])
    for number in range(problem.depth):
        blocks[number].set_weights([weights["kernel"][number], weights["bias"][number]])
        transforms[number].set_weights([weights["transform_kernel"][number], weights["transform_bias"][number]])
    head.set_weights([weights["head_kernel"], weights["head_bias"]])
    return fitting(model, problem)


if __name__ == "__main__":
    serve(start, "keras")
