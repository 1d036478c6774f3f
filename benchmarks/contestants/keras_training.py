"""Training with `Model.fit`, shared by both contestants on Keras."""

import keras

from benchmarks.contestants.batches import feeding
from benchmarks.problem import Problem
from benchmarks.worker import Train


def fitting(model: keras.Model, problem: Problem) -> Train:
    """Compiles a model, and makes a function that trains it with `fit` on NumPy arrays.

    Args:
        model: model from images [batch, 784] to logits.
        problem: data and settings.

    Returns:
        A function that trains for a whole number of epochs, or for a few steps of the first.
    """
    images, labels = problem.data()
    epoch = len(labels)
    whole = feeding(images, labels)
    compiled = keras.backend.backend() != "torch"  # PyTorch runs eagerly, step by step.
    model.compile(
        optimizer=keras.optimizers.Adam(
            problem.learning_rate, epsilon=problem.epsilon, global_clipnorm=problem.clip_norm
        ),
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        steps_per_execution=epoch if compiled else 1,
        jit_compile=compiled,
    )
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        first = done % epoch
        done += steps
        fed = feeding(images[first : first + steps], labels[first : first + steps]) if steps % epoch else whole
        history = model.fit(**fed, epochs=max(1, steps // epoch), verbose=0)
        return history.history["loss"]

    return train
