"""Training with `Model.fit`, which both convolutional contestants on Keras share."""

import keras

from benchmarks.contestants.batches import feeding
from benchmarks.conv_problem import ConvProblem
from benchmarks.worker import Train


def fitting(model: keras.Model, problem: ConvProblem) -> Train:
    """Trains a compiled model on the same few batches; the loss is the cross-entropy, without penalties.

    Args:
        model: compiled, with a metric named "crossentropy".
        problem: the problem, for its data.
    """
    images, labels = problem.data()
    batches = len(labels)
    one_hot = keras.utils.to_categorical(labels, 10)
    done = 0

    def train(steps: int) -> list[float]:
        nonlocal done
        chosen = [(done + step) % batches for step in range(steps)]
        done += steps
        history = model.fit(**feeding(images[chosen], one_hot[chosen]), verbose=0)
        return history.history["crossentropy"]

    return train
